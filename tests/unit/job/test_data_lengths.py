"""Lengths read from a data file: columns where they exist, characters where they do not, never nonsense."""

import json

import pytest

from headcount.errors import InputError
from headcount.job.data_lengths import data_lengths
from headcount.job.job import Origin
from headcount.job.load import read_spec


def jsonl(tmp_path, *rows):
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return file


def test_columns_are_taken_as_they_are(tmp_path):
    found = data_lengths(
        jsonl(
            tmp_path,
            {"prompt_tokens": 100, "completion_tokens": 30},
            {"prompt_tokens": 300, "completion_tokens": 50},
        )
    )
    assert found.rows == 2
    assert found.prompt is not None
    assert found.prompt.value == {"mean": 200, "max": 300}
    assert found.prompt.origin is Origin.GIVEN
    assert found.completion is not None
    assert found.completion.value == {"mean": 40, "max": 50}


def test_characters_are_an_assumption_with_an_alternative(tmp_path):
    found = data_lengths(jsonl(tmp_path, {"prompt": "x" * 400}, {"prompt": "y" * 1200}))
    assert found.prompt is not None
    assert found.prompt.origin is Origin.ASSUMED
    assert found.prompt.value == {"mean": 200, "max": 300}  # 4 characters a token
    assert found.prompt.alternatives == ({"mean": pytest.approx(266.67, abs=0.01), "max": 400},)  # 3
    assert found.completion is None


def test_the_longer_answer_of_a_pair_counts(tmp_path):
    found = data_lengths(jsonl(tmp_path, {"prompt": "q", "chosen": "a" * 40, "rejected": "b" * 80}))
    assert found.completion is not None
    assert found.completion.value == {"mean": 20, "max": 20}


def test_a_job_takes_rows_and_lengths_of_its_data_beside_the_job_file(tmp_path):
    jsonl(tmp_path, *[{"prompt_tokens": 64 + i, "completion_tokens": 16} for i in range(10)])
    job = tmp_path / "job.toml"
    job.write_text(
        'algorithm = "sft"\n[policy]\nmodel = "Qwen/Qwen2.5-7B-Instruct"\n[data]\nrows = "rows.jsonl"\n'
        '[hardware]\ngpu = "h100-sxm"\ngpus = 8\n'
    )
    built = read_spec(job).build()
    assert built.work.rows == 10
    assert built.lengths.prompt_max == 73
    assert built.lengths.completion_max == 16
    stated = read_spec(job, overrides=["data.prompt_tokens=512", "work.rows=99"]).build()
    assert (stated.lengths.prompt_max, stated.work.rows) == (512, 99)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("", "no rows"),
        ("[1, 2]", "not a JSON object"),
        ("{broken", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"prompt_tokens": NaN}', "not a number"),
        ('{"prompt_tokens": -3}', "not a number"),
        ('{"prompt_tokens": true}', "not a number"),
        ('{"prompt_tokens": "512"}', "not a number"),
        ('{"prompt_tokens": 1e300}', "not a number"),
        ('{"prompt_tokens": ' + "9" * 5000 + "}", "not JSON"),
    ],
)
def test_nonsense_is_refused_in_one_message(tmp_path, row, says):
    with pytest.raises(InputError, match=says):
        data_lengths(jsonl(tmp_path, row))


def test_binary_and_missing_files_are_refused(tmp_path):
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    for name in ("binary.jsonl", "missing.jsonl", "."):
        with pytest.raises(InputError):
            data_lengths(tmp_path / name)
