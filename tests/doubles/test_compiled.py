from __future__ import annotations

from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, get_cache_dir

from doubles.compiled import compile_module


def test_a_test_is_compiled_to_where_pytest_looks_for_it(pytestconfig, tmp_path):
    path = tmp_path / "test_one.py"
    path.write_text("def test_one():\n    assert 1 + 1 == 3\n", encoding="utf-8")
    compile_module(pytestconfig, path)
    assert _read_pyc(path, get_cache_dir(path) / f"test_one{PYC_TAIL}") is not None
