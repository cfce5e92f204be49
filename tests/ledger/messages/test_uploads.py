from __future__ import annotations

import pytest
from doubles.cost import assert_no_square
from hypothesis import example, given
from hypothesis import strategies as st

from backstory.ledger.text.blocks import strip_memory_blocks, strip_upload_blocks
from backstory.ledger.text.uploads import is_upload_event, scrub_uploads

LONG = 100_000

EVENTS = [
    "User uploaded a file called report.pdf.",
    "The user has attached two documents",
    "She just uploaded some screenshots of the error.",
    "Uploaded files: a.csv, b.csv",
    "A file named x.txt was uploaded",
    "User shared an attachment",
    "The uploaded document contains sales figures for Q3 and a chart.",
    "User uploaded a test file titled 'demo.txt' for verification purposes.",
    "In this session, the user uploaded three images.",
    "User uploaded her resume for review.",
    "User has uploaded report.pdf, budget.xlsx and two images.",
    "User uploaded a PDF to the conversation.",
    "Two files (a.csv, b.csv) were uploaded.",
    "report.pdf has already been uploaded by the user.",
    "The attached spreadsheet has three tabs",
    "- User uploaded a detailed report.",
    "1. User attached a CSV file",
    "Attachments: a.pdf",
    "I uploaded notes.md",
    "User provided a file named main.py",
    "The files uploaded by the user contain logs",
    '"Report.pdf" was uploaded.',
    "User uploaded a couple of files in this session.",
    "The user recently uploaded a 12-page PDF document titled “Plan for 2024”.",
    "用户上传了文件",
    "用户刚刚上传了一份PDF文档。",
    "上传了三张图片",
    "用户在本次会话中上传了 data.xlsx",
    "文件已上传",
    "文件已上传。",
    "用户上传的文档包含销售数据。",
    "用户上传了他的简历",
    "用户上传了一份名为《计划》的报告和两张图片。",
    "三张图片已成功上传到本次会话。",
    "上传的文件：a.csv、b.csv",
    "用户已上传报告.pdf",
    "用户分享了一个附件",
    "用户上传了两个文件（a.csv、b.csv）供分析。",
    "附件：合同.pdf",
    "一份PDF已被用户上传",
    "User uploaded a ZIP archive.",
    "User attached an attachment.",
    "She's uploaded a screenshot",
    "I've just uploaded two invoices and a contract",
    "User uploaded a file, report.pdf, today.",
    "User uploaded a spreadsheet which contains 40 rows.",
    "Also, the user uploaded a log file as an attachment.",
    "User uploaded 2023 tax documents",
    "User uploaded `my daily notes.md`",
    "User’s uploaded report includes a summary",
    "用户上傳了圖片",
    "文件上传成功",
    "本次会话中，用户上传了一份包含客户姓名的表格",
]

FACTS = [
    "Built a file upload service in Go",
    "User built a file upload service in Go",
    "User is working on an upload endpoint for large files",
    "User uploads nightly backups to S3",
    "User maintains the upload pipeline",
    "User prefers drag-and-drop uploads",
    "用户开发了一个文件上传服务",
    "用户负责上传模块",
    "用户喜欢上传照片到博客",
    "Users uploaded 4 million photos to her site last year",
    "User wrote a script that uploaded files to FTP",
    "User shared a photo of her dog with her sister",
    "User uploaded 4000 photos",
    "User uploaded a video to YouTube",
    "User uploaded a photo of her dog",
    "User uploaded a CSV and works at Acme",
    "User uploaded a CSV, and the user lives in Oslo",
    "User uploaded a PDF because he is moving to Bergen.",
    "Uploaded files are stored in S3",
    "Files are uploaded to S3 nightly",
    "Uploaded files:",
    "User uploaded a PDF parser to PyPI",
    "User attached a trailer to his car",
    "User is attached to her documents",
    "The uploaded files are deleted after 30 days",
    "Alice uploaded report.pdf",
    "User has not uploaded any files",
    "User plans to upload a report",
    "User sent report.pdf to Google",
    "User shared an article with colleagues",
    "User uploaded a file upload service to GitHub",
    "The uploaded document says; user likes tea",
    "User uploaded photos last year",
    "User uploaded a PDF and maintains PDF files",
    "User uploaded a video on YouTube",
    "用户每天上传照片",
    "用户上传了视频到YouTube",
    "用户上传了文件，喜欢看照片",
    "用户上传了文件并在奥斯陆工作",
    "用户去年上传了四百万张照片",
    "用户的网站允许上传图片",
    "系统会压缩用户上传的图片",
    "用户上传的照片存储在S3",
    "用户写了一个上传文件到FTP的脚本",
    "用户上传了她的狗的照片",
    "文件上传服务",
    "用户了解上传协议",
    "用户喜欢喝茶",
    "User shared report.pdf with Anna",
    "Uploaded files",
    "Uploaded documents for review",
    "",
    "...",
    "User likes tea",
    "User uploaded a PDF. Likes tea",
    "User uploaded a PDF\nLikes tea",
    "User uploaded a video of the talk to YouTube",
    "User uploaded 1,500 photos",
    "The uploaded files list has a bug",
    "User attached great importance to documents",
    "User uploads report.pdf every Monday",
    "User provided a report to the board",
    "User shared a document",
    "Files were uploaded to S3",
    "Photos were uploaded last year",
    "The report was written by Ada",
    "User uploaded the files that broke the build",
    "User uploaded everything",
    "Uploaded a photo gallery feature",
    "The uploaded document shows that the user lives in Oslo",
    "User has a file upload service",
    "User uploaded one of her paintings",
    "In Oslo the user uploaded",
    "The user",
    "Uploaded",
    "上传",
    "用户上传",
    "用户分享了“快乐”",
    "用户喜欢其他文件",
    "附近有一家咖啡馆",
    "用户买了一只狗",
    "用户上传的报告显示他住在奥斯陆",
    "用户上传了文件但不喜欢它",
]

BLOCKS = [
    ("<uploaded_files>\n- a.pdf\n</uploaded_files>\n\nWhat is in it?", "What is in it?"),
    ("Hi <UPLOADED_FILES>x</Uploaded_Files>there", "Hi there"),
    ('<current_uploads count="2">\r\na\r\n</current_uploads>\r\nGo on', "Go on"),
    ("  before <uploaded_files>a</uploaded_files>\n after <current_uploads>b</current_uploads>  ", "before  after"),
    ("<uploaded_files>a</uploaded_files>", ""),
    ("a<uploaded_files>x<uploaded_files>y</uploaded_files>z</uploaded_files>b", "ab"),
    ("a<uploaded_files>x<current_uploads>y</uploaded_files>z</current_uploads>b", "ab"),
    (
        "What does <uploaded_files> do? <uploaded_files>a</uploaded_files>Tell me",
        "What does <uploaded_files> do? Tell me",
    ),
    ("x <uploaded_files/> y <uploaded_files>a</uploaded_files>z", "x <uploaded_files/> y z"),
    ("one <uploaded_files >a< b > c</uploaded_files\n>\ntwo", "one two"),
]

UNTOUCHED = [
    "",
    "  plain text \n",
    " What does <uploaded_files> mean? ",
    " </uploaded_files> alone ",
    " </uploaded_files> the wrong way round <uploaded_files> ",
    " <uploaded_files> closed by another </current_uploads> ",
    " <uploaded_filesx>a</uploaded_filesx> ",
    " <memory>not an upload</memory> ",
    " <uploaded_files/> ",
    " <uploaded_files /> a </uploaded_files> ",
    " <uploaded_files <b>a</uploaded_files> ",
    " <uploaded_fileſ>a long s is no s</uploaded_fileſ> ",
]


@pytest.mark.parametrize(("text", "rest"), BLOCKS)
def test_an_upload_block_is_cut(text, rest):
    assert strip_upload_blocks(text) == rest


@pytest.mark.parametrize("text", UNTOUCHED)
def test_a_text_without_an_upload_block_is_left_to_the_byte(text):
    assert strip_upload_blocks(text) == text


@pytest.mark.parametrize(("text", "rest"), BLOCKS)
def test_a_memory_block_follows_the_same_rules(text, rest):
    for name in ("uploaded_files", "UPLOADED_FILES", "Uploaded_Files", "current_uploads"):
        text, rest = text.replace(name, "Memory"), rest.replace(name, "Memory")
    assert strip_memory_blocks(text) == rest


@pytest.mark.parametrize(
    "text", [" <memory> ", " <memory-bank>a</memory-bank> ", " <uploaded_files>a</uploaded_files> ", ""]
)
def test_a_text_without_a_memory_block_is_left_to_the_byte(text):
    assert strip_memory_blocks(text) == text


@given(st.text().filter(lambda text: "<" not in text))
def test_text_without_tags_is_left_to_the_byte(text):
    assert strip_upload_blocks(text) == text
    assert strip_memory_blocks(text) == text


PIECES = st.sampled_from(
    ["<memory>", "</memory>", "</MEMORY >", '<memory id="1">', "<memory/>", "a", " ", "\n", "\r\n", "<"]
)


@given(st.lists(PIECES).map("".join))
def test_cutting_blocks_only_removes(text):
    assert is_subsequence(strip_memory_blocks(text), text)


@given(st.text(), st.text(), st.text().filter(lambda text: "<" not in text))
def test_what_stands_in_a_block_never_matters(before, after, inside):
    left, right = before.replace("<", ""), after.replace("<", "").lstrip("\r\n")
    assert strip_memory_blocks(f"{left}<memory>{inside}</memory>\n{right}") == (left + right).strip()


@pytest.mark.parametrize("sentence", EVENTS)
def test_an_upload_event_is_known(sentence):
    assert is_upload_event(sentence)


@pytest.mark.parametrize("sentence", FACTS)
def test_a_fact_is_no_upload_event(sentence):
    assert not is_upload_event(sentence)


def test_the_user_who_built_an_upload_service_keeps_that():
    assert not is_upload_event("User built a file upload service in Go.")
    assert not is_upload_event("用户开发了一个文件上传服务。")


def test_a_script_that_uploaded_files_is_work():
    assert not is_upload_event("User wrote a script that uploaded files to FTP.")


def test_the_photos_on_her_site_are_a_fact_about_her_site():
    assert not is_upload_event("Users uploaded 4 million photos to her site last year.")


def test_a_photo_of_her_dog_shared_with_her_sister_is_her_life():
    assert not is_upload_event("User shared a photo of her dog with her sister.")


def test_a_habit_of_uploading_is_no_event():
    assert not is_upload_event("User uploads nightly backups to S3.")
    assert not is_upload_event("用户喜欢上传照片到博客。")


@pytest.mark.parametrize(
    ("before", "after"), [("- ", ""), ("", "!"), ("> 2) ", " "), ("“", ".”"), ("**", "**"), ("。", "。")]
)
def test_marks_around_a_sentence_do_not_change_the_verdict(before, after):
    assert [sentence for sentence in EVENTS if not is_upload_event(before + sentence + after)] == []
    assert [sentence for sentence in FACTS if is_upload_event(before + sentence + after)] == []


ENGLISH = [sentence.rstrip(".") for sentence in EVENTS if sentence.isascii()]
CHINESE = [sentence.rstrip("。") for sentence in EVENTS if "上传" in sentence]


@pytest.mark.parametrize(
    "more", [", but she prefers tea", "; lives in Oslo", " because of his thesis", " and he works at Acme"]
)
def test_an_event_that_says_something_else_as_well_is_kept(more):
    assert [sentence for sentence in ENGLISH if is_upload_event(sentence + more)] == []


@pytest.mark.parametrize("more", ["，但她喜欢茶", "，并且住在奥斯陆", "，住在上海", "；他是医生", "并在奥斯陆工作"])
def test_a_chinese_event_that_says_something_else_as_well_is_kept(more):
    assert [sentence for sentence in CHINESE if is_upload_event(sentence + more)] == []


@pytest.mark.parametrize(
    "more",
    [" and works at Acme", ", likes tea", " and reads documents", " - lives in Oslo", " to YouTube", " on Fridays"],
)
def test_a_second_half_without_a_subject_is_noticed_too(more):
    assert not is_upload_event("User uploaded a PDF document" + more)
    assert not is_upload_event("User uploaded a file called report.pdf" + more)
    assert not is_upload_event("A file named report.pdf was uploaded" + more)


def test_a_sentence_that_goes_on_and_on_is_none():
    assert is_upload_event("User uploaded a file about " + "tea " * 80)
    assert not is_upload_event("User uploaded a file about " + "tea " * 100)


SCRUBBED = [
    ("User likes tea. User uploaded a file called report.pdf. Lives in Bergen.", "User likes tea. Lives in Bergen.", 1),
    ("User uploaded a file called report.pdf. Lives in Bergen.", "Lives in Bergen.", 1),
    ("Lives in Bergen. User uploaded a.csv.", "Lives in Bergen.", 1),
    ("User uploaded a.csv.", "", 1),
    ("  User uploaded a.csv. Tea.", "Tea.", 1),
    ("用户喜欢茶。用户上传了文件。住在上海。", "用户喜欢茶。住在上海。", 1),
    ("用户上传了 data.xlsx！用户喜欢茶。", "用户喜欢茶。", 1),
    ("Uses v1.2, e.g. for tests. She just uploaded some screenshots! Ok?", "Uses v1.2, e.g. for tests. Ok?", 1),
    ("Met J. Smith. User uploaded a PDF. Dr. No too.", "Met J. Smith. Dr. No too.", 1),
    ("- Likes tea\n- User uploaded a.csv\n- Lives in Oslo\n", "- Likes tea\n- Lives in Oslo\n", 1),
    ("- User uploaded a.csv. Likes tea\n1. Oslo", "- Likes tea\n1. Oslo", 1),
    ("1. Likes tea. User uploaded a.csv.\n2. Oslo", "1. Likes tea.\n2. Oslo", 1),
    ("Tea.\n\nUser uploaded a.csv.\n\nOslo.", "Tea.\n\nOslo.", 1),
    ("Tea.\n\nUser uploaded a.csv.\n", "Tea.\n", 1),
    ("Tea.\n\nUser uploaded a.csv.", "Tea.", 1),
    ("User uploaded a.csv.\n\nTea.\n", "Tea.\n", 1),
    ("User uploaded a.csv.\nA file was uploaded.", "", 2),
    ("Tea. User uploaded a.csv.\r\nOslo.\r\nUser uploaded b.csv.\r\n", "Tea.\r\nOslo.\r\n", 2),
    ("Tea.\r\nUser uploaded a.csv.", "Tea.", 1),
    ("Tea.  User uploaded a.csv.  Oslo.  Rain.", "Tea.  Oslo.  Rain.", 1),
    ('She said "ok." User uploaded a PDF. (Oslo.) Rain', 'She said "ok." (Oslo.) Rain', 1),
    ("Wait... User uploaded a PDF?! Fine.", "Wait... Fine.", 1),
]


@pytest.mark.parametrize(("text", "rest", "count"), SCRUBBED)
def test_a_summary_loses_its_upload_events(text, rest, count):
    scrubbed, removed = scrub_uploads(text)
    assert scrubbed == rest
    assert len(removed) == count


def test_what_was_removed_is_told_in_order():
    text = "User uploaded a file called report.pdf. Likes tea.\n- 文件已上传。Oslo. A file was uploaded"
    assert scrub_uploads(text) == (
        "Likes tea.\n- Oslo.",
        ("User uploaded a file called report.pdf.", "文件已上传。", "A file was uploaded"),
    )


ONE_LINERS = [fact for fact in FACTS if not fact.startswith("User uploaded a PDF")]


@pytest.mark.parametrize(
    "text", ["", " \n ", "  Likes tea.  \n\n\n Oslo. ", "  ".join(ONE_LINERS), "\n".join(ONE_LINERS)]
)
def test_a_summary_without_uploads_is_left_to_the_byte(text):
    assert scrub_uploads(text) == (text, ())


MIXTURE = st.lists(
    st.sampled_from(
        [
            *(
                "User uploaded a file called report.pdf.",
                "User uploaded a PDF!",
                "用户上传了文件。",
                "文件已上传",
                "A file was uploaded",
            ),
            *("Likes tea.", "用户喜欢茶。", "e.g.", "v1.2", "J.", "“好。”", "(Oslo.)", "3.", "1)", "-", "*", "他"),
            *(" ", " ", "  ", "\n", "\n\n", "\r\n", "\r", "\t", "\u3000", ".", "。", "?", '"', "”", ")", "“"),
        ],
    ),
).map("".join)


def is_subsequence(part, whole):
    rest = iter(whole)
    return all(character in rest for character in part)


@given(st.one_of(MIXTURE, st.text()))
@example("好。用户上传了文件。”文件已上传")
@example("User uploaded a PDF! 1) 2) A file was uploaded")
def test_scrubbing_only_removes_and_once_is_enough(text):
    scrubbed, removed = scrub_uploads(text)
    assert is_subsequence(scrubbed, text)
    assert all(is_upload_event(sentence) and sentence in text for sentence in removed)
    assert scrub_uploads(scrubbed) == (scrubbed, ())
    assert removed or scrubbed == text
    if removed:
        assert len(scrubbed) + sum(map(len, removed)) <= len(text)
        assert not scrubbed.startswith(" ")


@given(
    st.lists(st.sampled_from(["Likes tea.", "Lives in Oslo!", "User uploaded a PDF.", "Uploaded a file?"]), min_size=1)
)
def test_the_other_sentences_stay_with_one_space_between(sentences):
    rest = " ".join(sentence for sentence in sentences if "ploaded" not in sentence)
    assert scrub_uploads(" ".join(sentences))[0] == rest


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *("<memory ", "<memory>", "</memory>", "<uploaded_files>", "<uploaded_files></uploaded_files>\n", "<", "\r\n"),
        *(".", ". ", "a.", "a. ", ".'", "。", "。”", "1) ", "1", " ", "\n", "\n \n", "x\n", "(", '"', "\0"),
        *(
            "User uploaded a file. ",
            "User uploaded ",
            "file and ",
            "用户上传了文件。",
            "上传了",
            "刚",
            "文件和",
            "的",
            "《",
            "a.pdf",
        ),
    ],
)
@pytest.mark.parametrize(
    "end", ["x", pytest.param("", marks=pytest.mark.torture), pytest.param("</memory>", marks=pytest.mark.torture)]
)
def test_hostile_texts_are_read_in_one_go(unit, end):
    for read in (strip_upload_blocks, strip_memory_blocks, is_upload_event, scrub_uploads):
        assert_no_square(lambda text, read=read: read(text + end), unit, LONG // 4)
    # Within the bound on a sentence the patterns themselves are at work.
    for before in ("", "User uploaded ", "用户上传了"):
        assert_no_square(lambda text, before=before: is_upload_event(before + text + end), unit, 90)
