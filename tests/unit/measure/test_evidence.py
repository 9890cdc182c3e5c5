"""Reading rows, reports and their sides; broken lines are named, not fatal."""

import json

import pytest

from headcount.errors import InputError
from headcount.measure.mapping.evidence import cases_of, merged, read_cases


def test_sides_are_merged_deeply_into_the_job():
    row = {
        "id": "R1",
        "job": {"gpus": 8, "batch": {"micro_batch_per_gpu": 1, "seq_len": 512}},
        "sides": {
            "fits": {"batch": {"micro_batch_per_gpu": 16}},
            "does_not_fit": {"batch": {"micro_batch_per_gpu": 32}},
        },
    }
    passing, failing = cases_of(row)
    assert (passing.id, passing.fits, failing.id, failing.fits) == ("R1/fits", True, "R1/does_not_fit", False)
    assert failing.fields["batch"] == {"micro_batch_per_gpu": 32, "seq_len": 512}
    assert failing.fields["gpus"] == 8


def test_merging_leaves_the_base_alone():
    base = {"a": {"b": 1}}
    assert merged(base, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}
    assert base == {"a": {"b": 1}}


def test_an_excluded_report_says_why():
    (case,) = cases_of({"id": "R2", "job": {"gpus": 1}, "job_excluded": "software bug", "verdict": "does_not_fit"})
    assert (case.excluded, case.fits) == ("software bug", False)


def test_a_report_without_a_job_is_kept_with_its_reason():
    (case,) = cases_of({"id": "R3", "job": None, "oomed": True})
    assert case.excluded == "no structured job"


def test_a_broken_line_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"id": "a", "measured": {}}) + "\n{broken\n[1]\n")
    cases = read_cases([path])
    assert [case.id for case in cases] == ["a", "rows.jsonl:2", "rows.jsonl:3"]
    assert cases[1].unreadable.startswith("not JSON")
    assert "not an object" in cases[2].unreadable


def test_a_file_without_one_readable_line_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("{\n")
    with pytest.raises(InputError, match=r"rows\.jsonl:1"):
        read_cases([path])


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_cases([tmp_path / "none.jsonl"])


def test_hostile_nesting_is_one_unreadable_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"id": "a"}) + "\n" + "[" * 100_000 + "\n")
    assert read_cases([path])[1].unreadable
