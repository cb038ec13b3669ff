"""The models of tools/round_trip.py: folders of transformers that are off their defaults in every field, data for them,
and what Octet and the library that people use compute of both."""
import json

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

import parity

WORDS = ["[UNK]", "[CLS]", "[SPARE]", "[SEP]", "[MASK]", "[PAD]", *"abcdefghijklmnopqrstuvwxyz.T",
         *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"), "the", "scale", "quick", "##rown", "fox"]
BYTES = ["<s>", "</s>", "<unk>", "<mask>", "<spare>", "<pad>"]
TEXTS = ["The scale is wrong.", "quick brown fox", "a", "no fox is in the scale", "twelve quick words", "b c d"]
LABELS = ["zeta", "alpha", "mid"]  # not in the order of the alphabet
SEQ, PAD = 24, 5
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
OFF = {"layer_norm_eps": 1e-4, "hidden_act": "gelu_new", "initializer_range": 0.03, "hidden_dropout_prob": 0.2,
       "attention_probs_dropout_prob": 0.3}
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "activation": "gelu",  # the only one that Octet reads
          "dropout": 0.2, "attention_dropout": 0.3, "qa_dropout": 0.15, "seq_classif_dropout": 0.25, "initializer_range": 0.03}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}
OFF_OF = {"llama_llama3": {"attention_bias": True, "mlp_bias": True}, "mistral": ROPE, "qwen2_window": ROPE | {"tie_word_embeddings": True},
          "qwen3_yarn": {}, "olmo": ROPE | {"attention_bias": True}, "olmo2": ROPE | {"attention_bias": True},
          "smollm3": ROPE | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
          "gpt2": {"n_positions": 40, "layer_norm_epsilon": 1e-3, "activation_function": "gelu"},
          "pythia": {"layer_norm_eps": 1e-3, "hidden_act": "gelu_new", "use_parallel_residual": False, "attention_bias": False},
          **{name: {} for name in parity.NEWER_KINDS.values()}, "gemma4": {"vocab_size_per_layer_input": 256}}
SENTENCE_FILES = ["modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json",
                  "2_Normalize/config.json"]
# Heads of transformers on a body that Octet reads; of the last it reads the hidden tokens', too.
FOREIGN = {"token classes": "ForTokenClassification", "choices": "ForMultipleChoice", "next sentence": "ForNextSentencePrediction",
           "pretraining": "ForPreTraining"}
HEAD_KEYS = {"architectures", "id2label", "label2id", "problem_type"}
NAMES = {"id2label": dict(enumerate(LABELS)), "label2id": {name: i for i, name in enumerate(LABELS)}}


def spread(kind, config, seed):
    """A model whose weights are wide enough that softmax, gates and norms are far from their linear parts."""
    torch.manual_seed(seed)
    model, generator = kind(config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for w in model.parameters():
            w.add_(torch.randn(w.shape, generator=generator) * 0.1)
    return model.eval()


def decompressed(model):
    """With weights that any machine computes with, where they are in 8 bits."""
    if getattr(model, "hf_quantizer", None) is not None:
        model.hf_quantizer.compressor.decompress_model(model)
        for w in model.parameters():
            w.data = w.data.float()
    return model


def squads(at, kind):
    """Contexts of one window; RoBERTa's fill it, since its padding has other positions here (docs/formats/texts.md)."""
    questions = [("quick fox", "The scale is wrong.", "scale"), ("a", "no fox is in the scale", "fox")]
    if kind == "roberta":  # a byte is a token
        questions = [("fox", "The scale is bad.", "scale"), ("a", "no fox is in scale.", "fox")]
    paragraphs = [{"context": context, "qas": [{"id": str(i), "question": question, "is_impossible": False, "answers": [
        {"text": answer, "answer_start": context.index(answer)}]}]} for i, (question, context, answer) in enumerate(questions)]
    (at / "data.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return questions


class Decoder:
    has_adapter = True
    may_change, lost = set(), staticmethod(lambda *_: [])
    head, train_flags = "next token", ["--set", "model.seq=24", "--set", "data.tokenizer=bytes"]
    ptq_flags = ["--seq", "24", "--tokenizer", "bytes"]

    def __init__(self, name):
        self.name = self.kind = name
        self.has_ptq = name != "gpt2"  # whose 8-bit weights, stored transposed, are in Octet's own layout

    def write(self, at):
        keys = {"vocab_size": 256, "bos_token_id": 3, "eos_token_id": 4, "pad_token_id": 5, "initializer_range": 0.03}
        parity.CASES["trip"] = parity.CASES[self.name] | keys | OFF_OF[self.name]
        model, _ = parity.model_of("trip")
        model.save_pretrained(at)

    def data(self, at):
        (at / "data.txt").write_bytes(b"a quick brown fox jumps over the lazy dog\n" * 8)
        return at / "data.txt"

    def reference(self, way):
        return {"ptq": "compressed-tensors", "adapter export": "PEFT"}.get(way, "transformers")

    def octet_value(self, trip, model):
        out = trip.run("eval", "--model", model, "--data", trip.data, "--tokenizer", "bytes", "--seq", SEQ, "--recipe", "fp32", "--json",
                       "--max-tokens", (len(trip.data.read_bytes()) - 1) // SEQ * SEQ)
        return torch.tensor(json.loads(out)[0]["nll"], dtype=torch.float64)

    def their_value(self, folder, trip, adapter):
        model = parity.load(folder)
        if adapter:
            import peft
            model = peft.PeftModel.from_pretrained(model, adapter).eval()
        return torch.tensor(parity.nll_of(model, list(trip.data.read_bytes()), SEQ)[0], dtype=torch.float64)


class Headed:
    """Encoders: of texts, of pictures."""
    has_ptq, has_adapter, has_vectors, may_change = True, True, False, set()

    def lost(self, way, start, folder):
        """Files of sentence-transformers, and weights of a head that Octet does not compute, that are others now."""
        if self.head == "embeddings":
            return [name for name in SENTENCE_FILES if (start / name).exists() and
                    json.loads((start / name).read_text()) != json.loads((folder / name).read_text())]
        if self.head not in FOREIGN or way == "run export":
            return []
        was, now = ({name: w for name, w in self.their_model(at, None).state_dict().items()
                     if name.startswith(("classifier", "cls.seq_relationship"))} for at in (start, folder))
        return [name for name, w in was.items() if not torch.equal(w, now[name])]

    def reference(self, way):
        return {"ptq": "compressed-tensors", "adapter export": "PEFT"}.get(way, "transformers")

    def octet_value(self, trip, model):
        out = json.loads(trip.run("eval", "--model", model, "--data", trip.data, "--recipe", "fp32", "--json", "--seq", SEQ))
        row = next(iter(out)) if isinstance(out, list) else out
        return torch.tensor(next(row[key] for key in ("cross_entropy", "nll", "squared_error") if key in row), dtype=torch.float64)


class Encoder(Headed):
    def __init__(self, kind, head):
        self.kind, self.head = kind, head
        self.train_flags = ["--set", f"model.seq={SEQ}"]
        self.ptq_flags = ["--seq", str(SEQ)]
        if self.has_vectors:
            self.train_flags += ["--set", "model.head=embeddings"]
        self.may_change = HEAD_KEYS if head in FOREIGN and self.has_vectors else set()  # its run has another head

    @property
    def has_vectors(self):
        return self.head in ("embeddings", "body", *FOREIGN) and self.head != "pretraining"

    def reference(self, way):
        if self.head == "embeddings":
            return "sentence-transformers" if way != "adapter export" else "PEFT"
        return super().reference(way)

    @property
    def architecture(self):
        prefix = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}[self.kind]
        heads = {"masked": "ForMaskedLM", "span": "ForQuestionAnswering", "embeddings": "Model", "body": "Model", **FOREIGN}
        return prefix + heads.get(self.head, "ForSequenceClassification")

    def config(self):
        kind = getattr(transformers, self.architecture).config_class
        keys = {"vocab_size": len(WORDS), "max_position_embeddings": 40, "pad_token_id": PAD}
        keys |= DISTIL if self.kind == "distilbert" else SHAPE | OFF | {"type_vocab_size": 3}
        if self.kind == "roberta":
            keys |= {"vocab_size": 256 + len(BYTES), "bos_token_id": 0, "eos_token_id": 1}
        if self.head == "value":
            keys |= {"id2label": {0: "warmth"}, "label2id": {"warmth": 0}, "problem_type": "regression"}
        if self.head in ("classes", "multi_label", "token classes"):
            keys |= NAMES | {"problem_type": ("multi" if self.head == "multi_label" else "single") + "_label_classification"}
        return kind(**keys)

    def tokenizer(self, at):
        if self.kind == "roberta":
            names = BYTES + sorted(parity.byte_vocabulary())
            return transformers.RobertaTokenizer(vocab={name: i for i, name in enumerate(names)}, merges=[], model_max_length=30)
        kind = transformers.BertTokenizer if self.kind == "bert" else transformers.DistilBertTokenizer
        return kind(vocab={name: i for i, name in enumerate(WORDS)}, do_lower_case=False, strip_accents=True, model_max_length=30)

    def write(self, at):
        model = spread(getattr(transformers, self.architecture), self.config(), 3)
        body = at.parent / "body" if self.head == "embeddings" else at
        model.save_pretrained(body)
        self.tokenizer(at).save_pretrained(body)
        if self.head == "embeddings":
            from sentence_transformers import SentenceTransformer
            from sentence_transformers.models import Normalize, Pooling, Transformer
            parts = [Transformer(str(body), max_seq_length=20), Pooling(32, pooling_mode="cls"), Normalize()]
            if self.kind == "distilbert":
                parts = [parts[0], Pooling(32, pooling_mode="mean")]
            SentenceTransformer(modules=parts, device="cpu", prompts={"query": "find: "}, similarity_fn_name="dot").save(str(at))

    def labels(self):
        if self.head == "value":
            return [0.5, -1.25, 2.0, 0.0, 1.5, -0.5]
        if self.head == "multi_label":
            return [["zeta"], ["mid", "alpha"], [], ["zeta", "mid"], ["alpha"], ["mid"]]
        return [LABELS[i] for i in (0, 1, 2, 1, 0, 2)]

    def data(self, at):
        if self.head in ("masked", "pretraining"):
            return self.masked(at)
        if self.head == "span":
            self.questions = squads(at, self.kind)
            return at / "data.json"
        if self.has_vectors:
            rows = [{"anchor": a, "positive": b} for a, b in zip(TEXTS, reversed(TEXTS))]
            (at / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
        else:
            rows = [{"text": text, "label": label} for text, label in zip(TEXTS, self.labels())]
        (at / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return at / "data.jsonl"

    def masked(self, at):
        generator = torch.Generator().manual_seed(1)
        vocab = self.config().vocab_size
        tokens = torch.randint(6, vocab, (4, SEQ), generator=generator)
        labels = torch.where(torch.rand(4, SEQ, generator=generator) < 0.3, torch.randint(6, vocab, (4, SEQ), generator=generator), -1)
        lengths = torch.tensor([SEQ, 17, 9, 20])
        for i, n in enumerate(lengths):
            tokens[i, n:], labels[i, n:] = PAD, -1
        self.arrays = {"tokens": tokens.int(), "labels": labels.int(), "lengths": lengths.int()}
        if self.kind != "distilbert":
            self.arrays["token_types"] = torch.zeros(4, SEQ, dtype=torch.int32)
        save_file(self.arrays, at / "data.safetensors")
        return at / "data.safetensors"

    def octet_value(self, trip, model):
        if self.has_vectors:
            how = [] if self.head == "embeddings" else ["--pooling", "cls", "--no-normalize"]
            out = trip.at / "vectors.npy"
            trip.run("embed", "--model", model, "--texts", trip.at / "texts.jsonl", "--out", out, "--recipe", "fp32", "--overwrite", *how)
            return torch.tensor(np.load(out), dtype=torch.float64)
        return super().octet_value(trip, model)

    def their_model(self, folder, adapter):
        """Of a head that a run replaces the class that its export names, and of adapters the body."""
        name = self.architecture
        if self.may_change:
            name = "AutoModel" if adapter else transformers.AutoConfig.from_pretrained(folder).architectures[0]
        model = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32)
        if adapter:
            import peft
            model = peft.PeftModel.from_pretrained(model, adapter)
        return decompressed(model).eval()

    def their_value(self, folder, trip, adapter):
        if self.head == "embeddings":
            return self.their_vectors(folder, adapter)
        model = self.their_model(folder, adapter)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            return (self.first_tokens if self.has_vectors else getattr(self, "loss_" + self.head))(model, tokenizer).double()

    def their_vectors(self, folder, adapter):
        from sentence_transformers import SentenceTransformer
        model = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
        decompressed(model[0].auto_model)
        if adapter:
            import peft
            model[0].auto_model = peft.PeftModel.from_pretrained(model[0].auto_model, adapter).eval()
        return torch.tensor(model.encode(TEXTS), dtype=torch.float64)

    @staticmethod
    def first_tokens(model, tokenizer):
        given = tokenizer(TEXTS, padding=True, return_tensors="pt")
        if "MultipleChoice" in type(model).__name__:
            given = {key: value[None] for key, value in given.items()}
        return model(**given, output_hidden_states=True).hidden_states[-1][:, 0]

    def loss_classes(self, model, tokenizer):
        labels = torch.tensor([model.config.label2id[label] for label in self.labels()])
        return F.cross_entropy(model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.double(), labels)

    def loss_multi_label(self, model, tokenizer):
        wanted = torch.tensor([[1.0 if model.config.id2label[i] in labels else 0.0 for i in range(len(LABELS))] for labels in self.labels()])
        logits = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
        return F.binary_cross_entropy_with_logits(logits.double(), wanted.double())

    def loss_value(self, model, tokenizer):
        got = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits[:, 0]
        return F.mse_loss(got.double(), torch.tensor(self.labels(), dtype=torch.float64))

    def loss_masked(self, model, _):
        given = {"input_ids": self.arrays["tokens"].long()}
        given["attention_mask"] = (torch.arange(SEQ)[None] < self.arrays["lengths"][:, None]).long()
        result = model(**given)
        logits = (result.prediction_logits if self.head == "pretraining" else result.logits).double()
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), self.arrays["labels"].long().reshape(-1), ignore_index=-1)

    loss_pretraining = loss_masked

    def loss_span(self, model, tokenizer):
        losses = []
        for question, context, answer in self.questions:
            given = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt", padding="max_length", max_length=SEQ,
                              truncation="only_second")  # a row's padding is among the candidates, here as there
            offsets, first = given.pop("offset_mapping")[0].tolist(), context.index(answer)
            inside = [i for i, (a, b) in enumerate(offsets) if given.sequence_ids(0)[i] == 1 and a < first + len(answer) and b > first]
            result = model(**given)
            for logits, at in ((result.start_logits, inside[0]), (result.end_logits, inside[-1])):
                losses.append(F.cross_entropy(logits.double(), torch.tensor([at])))
        return torch.stack(losses).mean()


class Pictures(Headed):
    """`head`: what the folder that it starts from has on its body; a run of another than classes gets classes."""
    ptq_flags = ["--keep", "*patch_embeddings*"]

    def __init__(self, kind, head="classes"):
        self.kind, self.head = kind, head
        self.prefix = {"vit": "ViT", "deit": "DeiT"}[kind]
        self.is_whole = head == "classes"
        self.train_flags = [] if self.is_whole else ["--set", "model.head=classes", "--set", "model.classes=3"]
        self.may_change = set() if self.is_whole else HEAD_KEYS
        self.has_ptq = self.is_whole  # by what its head gives

    @property
    def architecture(self):
        return self.prefix + {"classes": "ForImageClassification", "body": "Model", "teacher": "ForImageClassificationWithTeacher"}[self.head]

    def write(self, at):
        kind = getattr(transformers, self.architecture)
        config = kind.config_class(**SHAPE, **OFF, **NAMES, image_size=12, patch_size=4, num_channels=3, qkv_bias=False, encoder_stride=4)
        spread(kind, config, 4).save_pretrained(at)
        keys = {"size": {"height": 12, "width": 12}, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
        if self.kind == "deit":
            keys |= {"crop_size": {"height": 12, "width": 12}}
        getattr(transformers, self.prefix + "ImageProcessor")(**keys).save_pretrained(at)

    def data(self, at):
        from PIL import Image
        generator = np.random.default_rng(1)
        for i, label in enumerate(["zeta", "alpha", "mid", "alpha"]):
            (at / "pictures" / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(at / "pictures" / label / f"{i}.png")
        return at / "pictures"

    def octet_value(self, trip, model):
        if self.is_whole or (model / "ckpt").exists():
            return super().octet_value(trip, model)
            return Encoder.octet_value(self, trip, model)
        return self.their_value(trip.at / "start", trip, None)  # Octet computes nothing of it

    def their_model(self, folder, adapter):
        architecture = transformers.AutoConfig.from_pretrained(folder).architectures[0]
        name = self.prefix + "ForImageClassification" if adapter else architecture
        model = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32)
        if adapter:
            import peft
            model = peft.PeftModel.from_pretrained(model, adapter)
        return decompressed(model).eval()

    def their_value(self, folder, trip, adapter):
        from PIL import Image
        model = self.their_model(folder, adapter)
        files = sorted((trip.at / "pictures").glob("*/*.png"))
        # A run prepares pictures in its own way, which its adapters bring along.
        kind = getattr(transformers, self.prefix + "ImageProcessor") if adapter else transformers.AutoImageProcessor
        pixels = kind.from_pretrained(adapter or folder)([Image.open(file) for file in files], return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            result = model(pixel_values=pixels)
        if not hasattr(result, "logits"):
            return result.last_hidden_state.double()
        if not adapter and model.config.architectures[0].endswith("Teacher"):
            return result.logits.double()
        labels = torch.tensor([model.config.label2id[file.parent.name] for file in files])
        return F.cross_entropy(result.logits.double(), labels)


class Convolutional(Pictures):
    """Without adapters, and with 8-bit weights in Octet's own layout alone."""
    has_adapter = False
    KEYS = {"resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 1], "layer_type": "bottleneck",
                       "downsample_in_first_stage": True, "downsample_in_bottleneck": True},
            "mobilenet_v2": {"depth_multiplier": 0.2, "depth_divisible_by": 4, "min_depth": 6, "expand_ratio": 3, "output_stride": 8,
                             "first_layer_is_expansion": False, "finegrained_output": False, "tf_padding": False, "layer_norm_eps": 3e-4,
                             "classifier_dropout_prob": 0.3}}

    def __init__(self, kind):
        self.kind, self.head, self.prefix = kind, "classes", {"resnet": "ResNet", "mobilenet_v2": "MobileNetV2"}[kind]
        self.is_whole, self.train_flags, self.may_change, self.has_ptq = True, [], set(), False

    def write(self, at):
        kind = getattr(transformers, self.architecture)
        model = spread(kind, kind.config_class(**self.KEYS[self.kind], **NAMES, image_size=12, num_channels=3), 4)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for name, one in model.named_buffers():
                if name.endswith(("running_mean", "running_var")):
                    one.add_(torch.rand(one.shape, generator=generator))
        model.save_pretrained(at)
        keys = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
        if self.kind == "mobilenet_v2":
            keys |= {"size": {"shortest_edge": 13}, "crop_size": {"height": 12, "width": 12}}
        else:
            keys |= {"size": {"shortest_edge": 12}}
        processor = "MobileNetV2ImageProcessor" if self.kind == "mobilenet_v2" else "ConvNextImageProcessor"
        getattr(transformers, processor)(**keys).save_pretrained(at)


DECODERS = list(OFF_OF)
HEADS = ["masked", "classes", "multi_label", "value", "span", "embeddings", "body", "token classes", "choices"]
CASES = {name: Decoder(name) for name in DECODERS}
CASES |= {f"{kind}_{head.replace(' ', '_')}": Encoder(kind, head) for kind in ("bert", "roberta", "distilbert") for head in HEADS}
CASES |= {f"bert_{head.replace(' ', '_')}": Encoder("bert", head) for head in ("next sentence", "pretraining")}
CASES |= {f"{kind}_{head}": Pictures(kind, head) for kind, head in [
    ("vit", "classes"), ("vit", "body"), ("deit", "classes"), ("deit", "body"), ("deit", "teacher")]}
CASES |= {kind: Convolutional(kind) for kind in Convolutional.KEYS}
