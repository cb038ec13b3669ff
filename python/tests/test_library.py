"""octet.plan, train, load, study and run against the program, on a run of a few steps."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import octet
import pytest
from conftest import ROOT

TEXT = b"".join(b"the %d quick brown foxes jump over the lazy dog, and over %d more.\n" % (i, i * i) for i in range(400))
CONFIG = {
    "model": {"kind": "llama", "hidden": 32, "layers": 2, "heads": 2, "ffn": 64, "vocab": 256, "seq": 32},
    "recipe": "bf16",
    "optim": {"lr": 1e-3, "warmup": 2},
    "data": {"tokenizer": "bytes"},
    "train": {"steps": 12, "batch": 2, "eval_every": 6, "eval_bytes": 1024, "save_every": 5, "tensorboard": False},
}


def config_in(folder, **train):
    text = folder / "text.txt"
    text.write_bytes(TEXT)
    return {**CONFIG, "data": {**CONFIG["data"], "train": [str(text)]}, "train": {**CONFIG["train"], **train},
            "out": str(folder / "run")}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run: its folder, its configuration, and the steps as they came."""
    folder = tmp_path_factory.mktemp("finished")
    config = config_in(folder)
    steps = list(octet.train(config))
    return folder / "run", config, steps


def metrics_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_plan_is_what_the_program_prints(program, tmp_path):
    recipe = ROOT / "recipes" / "llama-3m.yaml"
    sets = {"recipe": "coat", "train.batch": 2}
    expected = json.loads(program("plan", recipe, "--json", "--set", "recipe=coat", "--set", "train.batch=2"))
    assert octet.plan(recipe, set=sets) == expected
    assert octet.plan(str(recipe), set=["recipe=coat", "train.batch=2"]) == expected
    assert octet.plan("llama-3m", set=sets) == expected
    planned = octet.plan(config_in(tmp_path), buffers=True)
    assert sum(planned["by_role"].values()) == planned["peak_bytes"] and len(planned["buffers"]) > 10
    assert octet.plan(recipe, device="cuda")["peak_bytes"] > 0


@pytest.mark.parametrize("call,text", [
    (lambda: octet.plan({"modle": {}}), "the nearest is|modle"),
    (lambda: octet.plan("nowhere.yaml"), "expected a configuration file.*nowhere.yaml"),
    (lambda: octet.plan("nothing"), "the name of a recipe, got 'nothing'"),
    (lambda: octet.plan("lama-3m"), "the nearest is llama-3m"),
    (lambda: octet.plan({"model": {"hidden": 7, "heads": 2}}), "hidden|heads"),
    (lambda: octet.plan(17), "expected a file's path or a dict, got int"),
    (lambda: octet.plan({"model": object()}), "expected values that YAML has"),
    (lambda: octet.plan({}, device="tpu"), "expected cpu or cuda, got tpu"),
    (lambda: octet.plan({}, isa="sse"), "expected auto, scalar, avx2, avx512 or amx, got sse"),
    (lambda: octet.plan({}, threads=-1), "expected an integer from 0 to 4096, got -1"),
    (lambda: octet.load("nowhere", device="tpu"), "expected cpu or cuda, got tpu"),
    (lambda: octet.plan({}, buffers=1), "buffers: expected True or False, got 1"),
    (lambda: octet.plan({}, set=3), "overrides: expected .*, got 3"),
    (lambda: octet.train({}, seed=1.5), "seed: expected an integer of 0 or more, got 1.5"),
    (lambda: octet.train({}, resume="no"), "resume: expected True or False, got 'no'"),
    (lambda: octet.train({}, on_step=3), "on_step: expected a function, got 3"),
    (lambda: octet.load(3), "path: expected a path, got 3"),
    (lambda: octet.load("nowhere", tokenizer=3), "tokenizer: expected a path, got 3"),
    (lambda: octet.load("nowhere", recipe=3), "recipe: expected a text, got 3"),
    (lambda: octet.load("nowhere", context=2**70), "context: expected a number of tokens"),
    (lambda: octet.load("nowhere", context=1.5), "context: expected a number of tokens, or 0 for the model's, got 1.5"),
])
def test_mistakes_are_errors_of_one_line(call, text):
    with pytest.raises(octet.Error, match=text) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_train_gives_the_metrics_of_its_steps(run):
    folder, _, steps = run
    assert [step["step"] for step in steps] == list(range(1, 13))
    assert steps == metrics_of(folder)
    assert steps[-1]["loss"] < steps[0]["loss"] and "val_loss" in steps[5]


def test_train_is_the_programs_bits(program, run, tmp_path):
    config = config_in(tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))
    program("train", path)
    assert [step["loss_bits"] for step in run[2]] == [step["loss_bits"] for step in metrics_of(tmp_path / "run")]


def test_a_run_that_is_left_is_saved_and_resumed_bit_for_bit(run, tmp_path):
    config = config_in(tmp_path)
    for step in octet.train(config):
        if step["step"] == 4:
            break
    assert list((tmp_path / "run" / "ckpt").glob("step-*/COMPLETE"))
    seen = []
    rest = octet.train(config, resume=True, on_step=seen.append)
    assert seen == list(rest) and seen[0]["step"] > 4 and seen[-1]["step"] == 12
    assert rest.result["steps" if "steps" in rest.result else "step"]
    assert [s["loss_bits"] for s in metrics_of(tmp_path / "run")] == [s["loss_bits"] for s in run[2]]


def test_errors_of_a_run_are_the_programs(run, tmp_path):
    folder, config, _ = run
    with pytest.raises(octet.Error, match="overwrite") as caught:  # the folder holds a run
        octet.train(config).wait()
    assert caught.value.exit_code in (2, 3) and "\n" not in str(caught.value)
    with pytest.raises(octet.Error, match="nothing.txt") as caught:
        octet.train({**config, "data": {"train": [str(tmp_path / "nothing.txt")]}, "out": str(tmp_path / "r")}).wait()
    assert caught.value.code == "bad_data"


def test_an_error_in_on_step_ends_the_run(tmp_path):
    def fail(step):
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        octet.train(config_in(tmp_path, steps=10000), on_step=fail)
    assert len(metrics_of(tmp_path / "run")) < 5000


def test_ctrl_c_ends_a_run_with_its_state_saved(tmp_path):
    code = ("import octet, sys\n"
            f"config = {config_in(tmp_path, steps=100000, save_every=100000)!r}\n"
            "try:\n"
            "    for step in octet.train(config):\n"
            "        print(step['step'], flush=True)\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', flush=True)\n")
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ)
    for line in child.stdout:
        if int(line) >= 3:
            break
    child.send_signal(signal.SIGINT)
    rest = child.stdout.read().split()
    assert child.wait(timeout=60) == 0 and rest[-1].endswith("interrupted")  # a number may stand before it
    last = metrics_of(tmp_path / "run")[-1]["step"]
    assert (tmp_path / "run" / "ckpt" / f"step-{last:06d}" / "COMPLETE").exists()


def test_logits_are_those_of_every_length(run):
    model = octet.load(run[0])
    assert (model.kind, model.vocab, model.tokenizer) == ("llama", 256, "bytes")
    ids = np.frombuffer(TEXT[:20], np.uint8).astype(np.int64)
    whole = model.logits(ids)
    assert whole.shape == (20, 256) and whole.dtype == np.float32 and np.isfinite(whole).all()
    assert whole[:7].tobytes() == model.logits(ids[:7]).tobytes()
    both = model.logits(np.stack([ids, ids[::-1]]))
    assert both.shape == (2, 20, 256) and both[0].tobytes() == whole.tobytes()
    assert model.logits(TEXT[:20].decode()).tobytes() == whole.tobytes()
    assert model.logits(np.zeros((0,), np.int32)).shape == (0, 256)


def test_translations_are_those_of_the_program(program, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("source\ttarget\nred cat\tchat rouge\nold cat\tvieux chat\nred\trouge\n")
    tokenizer = os.path.join(os.path.dirname(__file__), "../../tests/fixtures/tokenizers/sp_unigram.model")
    folder = str(tmp_path / "run")
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps({
        "model": {"kind": "t5", "hidden": 16, "layers": 1, "heads": 2, "ffn": 32, "vocab": 570, "seq": 12, "source_seq": 16},
        "recipe": "fp32", "data": {"tokenizer": os.path.abspath(tokenizer), "train": [str(pairs)]},
        "train": {"steps": 4, "batch": 3}, "out": folder}))
    program("train", config, "--quiet")
    sources = tmp_path / "sources.txt"
    sources.write_text("old red cat\nred\n")
    rows = json.loads(program("generate", "--model", folder, "--sources", sources, "--beams", "3", "--max-tokens", "8", "--json"))
    model = octet.load(folder)
    assert model.translate(["old red cat", "red"], beams=3, max_tokens=8) == [row["text"] for row in rows]
    assert model.translate("red", beams=3, max_tokens=8) == rows[1]["text"]
    for call, text in ((lambda: model.translate(3), "source: expected a text or a list of them"),
                       (lambda: model.translate("red", early_stopping="maybe"), "expected no, yes or never"),
                       (lambda: model.translate("red", max_tokens=0), "max_tokens: expected an integer"),
                       (lambda: model.generate("red"), "which translates")):
        with pytest.raises(octet.Error, match=text):
            call()


def test_nll_is_what_the_program_says(program, run, tmp_path):
    text = tmp_path / "other.txt"
    text.write_bytes(TEXT[1000:3000])
    rows = json.loads(program("eval", "--model", run[0], "--tasks", "nll", "--data", text, "--json"))
    model = octet.load(run[0])
    assert f"{model.nll(TEXT[1000:3000]):.6f}" == f"{rows[0]['nll']:.6f}"
    assert model.nll(np.frombuffer(TEXT[1000:3000], np.uint8)) == model.nll(TEXT[1000:3000].decode())


def test_nll_is_the_logits_own(run):
    model = octet.load(run[0], recipe="fp32")
    ids = np.frombuffer(TEXT[:32], np.uint8).astype(np.int32)
    logits = model.logits(ids).astype(np.float64)
    log_p = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) \
        - logits.max(-1, keepdims=True)
    mean = -np.mean(log_p[np.arange(31), ids[1:]])
    assert abs(model.nll(ids, batch=1) - mean) < 1e-5


def test_generate_is_what_the_program_prints(program, run):
    model = octet.load(run[0])
    printed = program("generate", "--model", run[0], "--prompt", "the quick", "--max-tokens", 15, "--temperature", 0)
    pieces = []
    text = model.generate("the quick", 15, on_text=lambda index, piece: pieces.append((index, piece)))
    assert text + "\n" == printed.decode(errors="replace")
    assert "the quick" + "".join(piece for _, piece in pieces) == text
    assert model.generate("the quick", 15, seed=3) == text  # nothing is drawn
    sampled = program("generate", "--model", run[0], "--prompt", "the", "--max-tokens", 15, "--temperature", 0.9,
                      "--top-k", 20, "--seed", 3)
    assert model.generate("the", 15, temperature=0.9, top_k=20, seed=3) + "\n" == sampled.decode(errors="replace")
    assert model.generate(["the quick", "over"], 15)[0] == text
    assert model.generate([], 5) == []


@pytest.mark.parametrize("name, value", [("temperature", -1), ("temperature", float("nan")), ("top_k", -1), ("top_p", 0),
                                         ("min_p", 2), ("repetition_penalty", 0), ("max_tokens", -1), ("batch", -1)])
def test_generate_refuses_numbers_that_mean_nothing(run, name, value):
    with pytest.raises(octet.Error, match="expected") as error:
        octet.load(run[0]).generate("the", **{name: value})
    assert error.value.exit_code == 2


@pytest.mark.parametrize("name, given", [("prompt", {"prompt": 5}), ("prompt", {"prompt": None}), ("prompt", {"prompt": ["a", 5]}),
                                         ("stop", {"prompt": "a", "stop": 5}), ("stop", {"prompt": "a", "stop": b"b"})])
def test_generate_refuses_what_is_no_text(run, name, given):
    with pytest.raises(octet.Error, match=rf"\[model\] {name}: expected a text or a list of them, got") as error:
        octet.load(run[0]).generate(**given)
    assert error.value.exit_code == 2


def test_an_error_in_on_text_comes_through(run):
    def fail(index, text):
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        octet.load(run[0]).generate("the", 5, on_text=fail)


def test_weights_are_arrays_in_place(run):
    model = octet.load(run[0])
    assert len(model.weights) == len(list(model.weights)) and "lm_head.weight" in model.weights
    total = 0
    for name in model.weights:
        values = model.weights.numpy(name)
        assert values.dtype == np.float32 and np.isfinite(values).all()
        total += values.size
    assert total == model.parameters
    array = model.weights["model.embed_tokens.weight"]
    assert array.__dlpack_device__() == (1, 0)
    torch = sys.modules.get("torch")
    if torch is not None:
        assert torch.from_dlpack(array).float().numpy().tobytes() == \
            model.weights.numpy("model.embed_tokens.weight").tobytes()
    with pytest.raises(KeyError):
        model.weights["nothing"]


@pytest.mark.parametrize("call,text", [
    (lambda model: model.logits(np.zeros(33, np.int32)), "expected at most 32 tokens, got 33"),
    (lambda model: model.logits([256]), r"expected tokens in \[0, 256\), got 256"),
    (lambda model: model.logits([-1]), "got -1"),
    (lambda model: model.logits([0.5]), "expected text, or integers"),
    (lambda model: model.logits(np.zeros((1, 2, 3), np.int32)), "expected text, or integers"),
    (lambda model: model.nll("a"), "expected two tokens or more, got 1"),
    (lambda model: model.nll("ab", batch=0), "batch: expected an integer of 1 or more, got 0"),
    (lambda model: model.nll("ab", batch=2.0), "batch: expected an integer of 1 or more, got 2.0"),
    (lambda model: model.nll("ab", batch=2**70), "batch: expected an integer of 1 or more, got 1180591620717411303424"),
    (lambda model: model.nll("ab", seq=-1), "seq: expected an integer of 0 or more, got -1"),
    (lambda model: model.nll("ab", seq=None), "seq: expected an integer of 0 or more, got None"),
    (lambda model: model.generate("a", -1), "max_tokens: expected an integer of 0 or more, got -1"),
    (lambda model: model.generate("a", None), "max_tokens: expected an integer of 0 or more, got None"),
    (lambda model: model.generate("a", 1, seed=-1), "seed: expected an integer from 0 to 4294967295, got -1"),
    (lambda model: model.generate("a", 1, temperature="1"), "temperature: expected a finite number, got '1'"),
    (lambda model: model.generate("a", 1, batch=True), "batch: expected an integer of 0 or more, got True"),
    (lambda model: model.generate("a", 1, on_text=3), "on_text: expected a function, got 3"),
    (lambda model: model.generate(""), "expected some text, got none"),
    (lambda model: model.generate("a", top_k=3), "top_k: expected a temperature above 0 beside it, got 3"),
])
def test_mistakes_with_a_model_are_errors_of_one_line(run, call, text):
    with pytest.raises(octet.Error, match=text) as caught:
        call(octet.load(run[0]))
    assert "\n" not in str(caught.value)


def test_what_is_no_model_is_an_error(tmp_path):
    with pytest.raises(octet.Error) as caught:
        octet.load(tmp_path)
    assert caught.value.code == "bad_data"


def test_studies_are_arrays(program, tmp_path):
    study = octet.study.formats(samples=256)
    expected = json.loads(program("study", "formats", "--samples", 256, "--json"))
    assert [dict(zip(study.table, row)) for row in zip(*(column.tolist() for column in study.table.values()))] == \
        [{k: float(v) if isinstance(v, (int, float)) else v for k, v in row.items()} for row in expected]
    assert study.sheets and all(len(column) > 1 for sheet in study.sheets.values() for column in sheet.values())


def test_every_command_can_be_run(program, run):
    assert octet.run("formats", "list") == json.loads(program("formats", "list", "--json"))
    assert octet.run("eval", model=run[0], tasks="nll", max_tokens=64)[0]["task"] == "nll"
    with pytest.raises(octet.Error, match="unknown command") as caught:
        octet.run("plant")
    assert caught.value.exit_code == 2


def test_a_long_plan_lets_other_threads_run():
    import threading
    done = threading.Event()
    thread = threading.Thread(target=lambda: (octet.plan(ROOT / "recipes" / "llama-3m.yaml"), done.set()))
    thread.start()
    ticks = 0
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 3
