"""The digest of `octet convert --verify`, and octet.check_folder, which repeats it with the programs that are installed."""

import json

import numpy as np
import pytest
from octet import check_folder
from octet.check_folder import DIGEST, Comparison, Verdict
from test_check_folder import write_model


@pytest.fixture
def exported(program, tmp_path):
    write_model(tmp_path / "model")
    program("convert", tmp_path / "model", tmp_path / "out", "--verify", "--quiet")
    return tmp_path / "out"


def test_a_digest_holds_what_the_model_gives(exported):
    digest = json.loads((exported / DIGEST).read_text())
    assert (digest["model"], digest["vocab"], len(digest["rows"])) == ("llama", 256, 2)
    import octet
    model = octet.load(str(exported), tokenizer="bytes")
    for i, row in enumerate(digest["rows"]):
        assert row["tokens"] == [(7919 * (16 * i + j) + 13) % 256 for j in range(16)]
        logits = np.asarray(model.logits(row["tokens"]), np.float64)
        for position, values in zip(row["positions"], logits, strict=True):
            assert position["log_sum"] == pytest.approx(np.log(np.exp(values).sum()), abs=1e-6)
            ids, got = zip(*position["logits"], strict=True)
            assert list(ids[:8]) == np.argsort(-values, kind="stable")[:8].tolist()
            assert list(ids[8:]) == [k * 256 // 8 for k in range(8)]
            np.testing.assert_allclose(got, values[list(ids)], atol=1e-6)


def changed(exported, change):
    path = exported / DIGEST
    digest = json.loads(path.read_text())
    change(digest)
    path.write_text(json.dumps(digest))


def test_transformers_repeats_it(exported, capsys):
    pytest.importorskip("transformers")
    assert check_folder.main([str(exported), "--judge", "transformers"]) == 0
    assert "top-1 32/32" in capsys.readouterr().out

    def shift(digest):
        digest["rows"][1]["positions"][3]["logits"][9][1] += 0.01

    changed(exported, shift)
    assert check_folder.main([str(exported), "--judge", "transformers"]) == 1
    assert "largest difference 0.01 of 0.002" in capsys.readouterr().out


def test_other_weights_fail(exported):
    pytest.importorskip("transformers")
    path = exported / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-20000:] = data[-40000:-20000]
    path.write_bytes(data)
    [verdict] = check_folder.check(exported, ["transformers"])
    assert verdict.result == "fail" and "largest difference" in verdict.words[1], verdict


@pytest.mark.parametrize("dtype", ["fp8-block", "fp8-tensor"])
def test_8_bit_weights_pass(program, tmp_path, dtype):
    pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    write_model(tmp_path / "model")
    program("convert", tmp_path / "model", tmp_path / "out", "--verify", "--dtype", dtype, "--quiet")
    [verdict] = check_folder.check(tmp_path / "out", ["transformers"])
    assert verdict.result == "pass" and "largest difference" in verdict.words[1], verdict


def position(logits, log_sum=0.0):
    return {"log_sum": log_sum, "logits": logits}


def test_another_first_token_passes_within_the_margin_alone():
    near, far = position([[5, -1.0], [6, -1.1]]), position([[5, -1.0], [6, -2.0]])
    for given, result in ((near, "pass"), (far, "fail")):
        compared = Comparison(tolerance=0.1)
        compared.add(given, dict(map(tuple, given["logits"])), 6)
        assert compared.verdict("x", []).result == result
    missing = Comparison(tolerance=0.1)
    missing.add(near, {7: -1.0}, 7)
    assert missing.verdict("x", []).result == "fail" and missing.largest == float("inf")
    nan = Comparison(tolerance=0.1)
    nan.add(near, {5: float("nan")}, 5)
    assert nan.verdict("x", []).result == "fail"


def test_what_is_no_digest_is_one_line(exported, capsys):
    pytest.importorskip("transformers")
    for text in ("{", '{"format": 2, "rows": []}', '{"format": 1, "rows": [{"tokens": [1], "positions": []}]}'):
        (exported / DIGEST).write_text(text)
        assert check_folder.main([str(exported), "--judge", "transformers"]) == 2
        said = capsys.readouterr().err
        assert "expected the digest of `octet convert --verify`" in said and said.count("\n") == 1


def test_a_judge_of_other_files_says_so(tmp_path):
    write_model(tmp_path / "model")
    assert check_folder.check(tmp_path / "model", ["llama.cpp"]) == [Verdict("llama.cpp", "skipped", ["no GGUF file"])]
    (tmp_path / "x.gguf").touch()
    assert check_folder.check(tmp_path / "x.gguf", ["vllm"]) == [Verdict("vllm", "skipped", ["a GGUF file"])]


def test_a_model_without_a_tokenizer_becomes_no_gguf_file(program, tmp_path):
    write_model(tmp_path / "model")
    assert check_folder.main([str(tmp_path / "none.gguf")]) == 2
    program("convert", tmp_path / "model", tmp_path / "x.gguf", "--quiet", code=2)  # without a tokenizer
    assert not list(tmp_path.glob("x.gguf*"))
