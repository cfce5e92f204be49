"""JUnit XML of a result, for continuous integration: a suite for each file, a case for each expectation."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from backstory.memory_tests.run import TestResult

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(result: TestResult) -> bytes:
    """Return the XML of a result; without times, so that equal results are equal bytes."""
    total = result.passed + result.failed
    root = Element("testsuites", tests=str(total), failures=str(result.failed), errors="0")
    for one in result.files:
        failed = sum(not verdict.ok for verdict in one.expectations)
        suite = SubElement(
            root, "testsuite", name=_text(one.file), tests=str(len(one.expectations)), failures=str(failed), errors="0"
        )
        for verdict in one.expectations:
            case = SubElement(suite, "testcase", classname=_text(one.file), name=_text(verdict.expect))
            if not verdict.ok:
                SubElement(case, "failure", message=_text(verdict.why)).text = _text(verdict.text)
    indent(root)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, "unicode").encode() + b"\n"


def _text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
