"""Objects of a parent in forked children, as DataLoader and multiprocessing make them, and in several threads: results or one line,
never a wait for ever."""

import json
import os
import pickle
import signal
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import octet
import pytest

TEXT = "".join(f"the {i} quick brown foxes jump over the lazy dog, and over {i * i} more.\n" for i in range(60))
HIDDEN, FFN, VOCAB, LAYERS = 64, 128, 256, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Hugging Face folder of a small random Llama."""
    path = tmp_path_factory.mktemp("llama")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN,
              "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": VOCAB,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
              "hidden_act": "silu", "torch_dtype": "float32"}
    (path / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        for name, shape in (("self_attn.q_proj", (HIDDEN, HIDDEN)), ("self_attn.k_proj", (HIDDEN, HIDDEN)),
                            ("self_attn.v_proj", (HIDDEN, HIDDEN)), ("self_attn.o_proj", (HIDDEN, HIDDEN)),
                            ("mlp.gate_proj", (FFN, HIDDEN)), ("mlp.up_proj", (FFN, HIDDEN)), ("mlp.down_proj", (HIDDEN, FFN)),
                            ("input_layernorm", (HIDDEN,)), ("post_attention_layernorm", (HIDDEN,))):
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    rng, header, data = np.random.default_rng(1), {}, b""
    for name, shape in shapes.items():
        values = (rng.standard_normal(shape) * 0.1 + (len(shape) == 1)).astype(np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def in_child(call):
    """What a call gives, or raises, in a forked child; it has 60 seconds."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            data = pickle.dumps(call())
        except BaseException as error:
            data = pickle.dumps(error)
        with os.fdopen(write, "wb") as file:
            file.write(data)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        data = file.read()
    assert os.waitpid(child, 0)[1] == 0, "the child hung"
    return pickle.loads(data)


def answers(model):
    return (model.nll(TEXT[:1500], batch=2, seq=256), model.logits(TEXT[:300]).tobytes(), model.generate("the quick", max_tokens=5),
            float(model.weights.numpy("model.norm.weight").sum()), model.tokens("abc").tolist())


def test_a_model_of_the_parent_answers_in_forked_children(folder):
    model = octet.load(folder, tokenizer="bytes", threads=4)
    expected = answers(model)
    assert in_child(lambda: answers(model)) == expected
    assert in_child(lambda: in_child(lambda: answers(model))) == expected
    assert answers(model) == expected
    held = [model]
    del model

    def drop():
        assert answers(held[0]) == expected
        held.clear()  # its threads are the parent's
        return "dropped"

    assert in_child(drop) == "dropped"
    assert in_child(lambda: held.clear()) is None
    assert answers(held[0]) == expected


def test_a_model_whose_process_forked_during_a_call_is_one_line(folder):
    model = octet.load(folder, tokenizer="bytes", threads=2)
    raised, within = [], []

    def on_text(index, text):
        if not raised:
            raised.append(in_child(lambda: model.logits([1, 2, 3])))
            with pytest.raises(octet.Error, match=r"\[model\] expected no call within another one") as caught:
                model.logits([1, 2, 3])
            within.append(str(caught.value))

    model.generate("the quick", max_tokens=5, on_text=on_text)
    assert isinstance(raised[0], octet.Error) and "got a child of one that forked during a call" in str(raised[0])
    assert "\n" not in str(raised[0]) + within[0]
    assert model.logits([1, 2, 3]).shape == (3, VOCAB)


def test_threads_of_one_model_have_their_own_results(folder):
    model = octet.load(folder, tokenizer="bytes", threads=2)
    rng = np.random.default_rng(2)
    texts = [bytes(rng.integers(32, 127, int(n), dtype=np.uint8)).decode() for n in rng.integers(5, 400, 12)]

    def ask(i):
        text = texts[i % len(texts)]
        if i % 3 == 0:
            return model.nll(text, batch=1 + i % 2, seq=64)
        return model.logits(text).tobytes() if i % 3 == 1 else model.generate(text[:20], max_tokens=4)

    expected = [ask(i) for i in range(24)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(2):
            assert list(pool.map(ask, range(24))) == expected


def test_another_thread_waits_for_a_generation_and_the_interpreter_goes_on(folder):
    model = octet.load(folder, tokenizer="bytes")
    began, order = threading.Event(), []
    thread = threading.Thread(target=lambda: (began.wait(20), order.append(model.logits("abc").shape)))
    thread.start()

    def on_text(index, text):
        began.set()
        order.append("text")

    model.generate("the quick", max_tokens=20, on_text=on_text)
    thread.join(60)
    assert not thread.is_alive() and order[-1] == (3, VOCAB)


def test_a_data_loader_asks_a_model_of_the_parent(folder):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    model = octet.load(folder, tokenizer="bytes", threads=2)

    class Texts(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return model.nll(TEXT[i * 50:i * 50 + 200], batch=1, seq=64)

    expected = [Texts()[i] for i in range(6)]
    loader = torch.utils.data.DataLoader(Texts(), num_workers=2, multiprocessing_context="fork", batch_size=None, timeout=60)
    assert [float(value) for value in loader] == expected


@pytest.fixture
def one_torch_thread():
    """PyTorch itself waits for ever in a child of a process that has computed in parallel."""
    torch = pytest.importorskip("torch", reason="octet.optim needs PyTorch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(before)


def test_an_optimizer_of_the_parent_steps_in_forked_children(one_torch_thread):
    torch = one_torch_thread
    p = torch.nn.Parameter(torch.linspace(-1, 1, 1 << 20).bfloat16())
    optimizer = octet.optim.AdamW([("w", p)], lr=1e-2, clip=1.0, threads=4)
    p.grad = torch.linspace(-1, 2, 1 << 20).bfloat16()
    optimizer.step()

    def step():
        optimizer.step()
        return p.detach().view(torch.int16).numpy().tobytes(), optimizer.grad_norm

    in_children = [in_child(step), in_child(lambda: in_child(step))]
    assert in_children == [step()] * 2


def test_an_optimizer_whose_process_forked_during_a_step_is_one_line(one_torch_thread, monkeypatch):
    torch = one_torch_thread
    p = torch.nn.Parameter(torch.ones(8))
    optimizer, raised = octet.optim.AdamW([p]), []
    p.grad = torch.ones(8)
    step = optimizer._kernels.step

    def forks(*arguments):
        raised.append(in_child(optimizer.step))
        return step(*arguments)

    monkeypatch.setattr(optimizer._kernels, "step", forks)
    optimizer.step()
    assert isinstance(raised[0], octet.Error) and "expected one step at a time" in str(raised[0])
