#!/usr/bin/env python3
"""Fixtures of encoders, and of those with a decoder: tiny random models of transformers, what they give, and gradients.

    tools/make_encoder_goldens.py FOLDER [NAME...]    writes FOLDER/NAME.safetensors for every case below, or for these

A file holds config.json and the sizes as metadata, and the tensors
    w:NAME    the model's state, by transformers' names
    i:NAME    an input, by Octet's name
    output    what the head gives;  dout, a random cotangent; output_2 and dout_2, of a second output
    g:NAME    the gradient of sum(output * dout), of both
Needs torch, torchvision, transformers and safetensors; only tests/golden/encoders reads the files.
"""

import copy
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = {**SMALL, "vocab_size": 61, "max_position_embeddings": 24, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 61, "max_position_embeddings": 24, "dropout": 0,
          "attention_dropout": 0, "qa_dropout": 0, "seq_classif_dropout": 0}
IMAGE = {**SMALL, "image_size": 12, "patch_size": 4, "num_channels": 3, "hidden_dropout_prob": 0,
         "attention_probs_dropout_prob": 0}
CLASSES = {str(i): f"LABEL_{i}" for i in range(5)}

RESNET = {"num_channels": 3, "embedding_size": 8, "depths": [2, 1], "id2label": CLASSES}

CASES = {
    "vit": ("ViTForImageClassification", {**IMAGE, "id2label": CLASSES}),
    "deit": ("DeiTForImageClassification", {**IMAGE, "id2label": CLASSES}),
    "bert_masked": ("BertForMaskedLM", TEXT),
    "bert_classes": ("BertForSequenceClassification", {**TEXT, "id2label": CLASSES}),
    "bert_span": ("BertForQuestionAnswering", TEXT),
    "bert_features": ("BertModel", {**TEXT, "hidden_act": "gelu_new"}),
    "bert_embeddings": ("BertModel", TEXT),  # the mean over each row's tokens
    "roberta_masked": ("RobertaForMaskedLM", {**TEXT, "type_vocab_size": 3, "pad_token_id": 2, "hidden_act": "gelu_new",
                                              "layer_norm_eps": 1e-4}),
    "roberta_classes": ("RobertaForSequenceClassification", {**TEXT, "type_vocab_size": 1, "id2label": CLASSES}),
    "distilbert_masked": ("DistilBertForMaskedLM", DISTIL),
    "distilbert_classes": ("DistilBertForSequenceClassification", {**DISTIL, "id2label": CLASSES}),
    "resnet_basic": ("ResNetForImageClassification", {**RESNET, "image_size": 30, "layer_type": "basic",
                                                      "hidden_sizes": [8, 12]}),
    "resnet_bottleneck": ("ResNetForImageClassification", {**RESNET, "image_size": 33, "layer_type": "bottleneck",
                                                           "hidden_sizes": [8, 16], "downsample_in_first_stage": True}),
    "resnet_early": ("ResNetForImageClassification", {**RESNET, "image_size": 32, "layer_type": "bottleneck",
                                                      "hidden_sizes": [12, 16], "downsample_in_bottleneck": True}),
}

T5 = {"vocab_size": 31, "d_model": 16, "d_kv": 6, "d_ff": 20, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 2,
      "dropout_rate": 0, "n_positions": 9}
MARIAN = {"vocab_size": 31, "d_model": 16, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "encoder_attention_heads": 2,
          "decoder_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0, "max_position_embeddings": 24,
          "pad_token_id": 30, "decoder_start_token_id": 30, "source_positions": 9}
CASES |= {
    "t5": ("T5ForConditionalGeneration", {**T5, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 7}),
    "t5_gated_untied": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
                                                       "layer_norm_epsilon": 1e-4}),
    "t5_unscaled": ("T5ForConditionalGeneration", {**T5, "tie_word_embeddings": False, "num_decoder_layers": 1, "num_layers": 2}),
    "mt5": ("MT5ForConditionalGeneration", T5),
    "marian_swish": ("MarianMTModel", {**MARIAN, "activation_function": "swish", "scale_embedding": True}),
    "marian_relu": ("MarianMTModel", {**MARIAN, "activation_function": "relu"}),
    "marian_gelu": ("MarianMTModel", {**MARIAN, "activation_function": "gelu", "scale_embedding": True}),
}
CLIP = {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 2,
        "image_size": 8, "patch_size": 4, "projection_dim": 8}
DECODER = {"vocab_size": 23, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
           "head_dim": 6, "max_position_embeddings": 32}
LLAVA = "LlavaForConditionalGeneration"
CASES |= {
    "llava": (LLAVA, {"vision_config": CLIP, "text_config": {"model_type": "llama", **DECODER}, "image_token_index": 22}),
    "llava_siglip": (LLAVA, {"vision_config": {**CLIP, "model_type": "siglip_vision_model", "hidden_act": "gelu", "num_channels": 1},
                             "text_config": {"model_type": "qwen2", "tie_word_embeddings": True, **DECODER}, "image_token_index": 3,
                             "vision_feature_layer": -1, "vision_feature_select_strategy": "full", "projector_hidden_act": "relu"}),
    "llava_ragged": (LLAVA, {"vision_config": {**CLIP, "image_size": 10, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
                             "text_config": {"model_type": "mistral", "sliding_window": 4, **DECODER}, "image_token_index": 0,
                             "vision_feature_layer": 1, "vision_feature_select_strategy": "full", "projector_hidden_act": "silu",
                             "multimodal_projector_bias": False}),
    "llava_second": (LLAVA, {"vision_config": {**CLIP, "model_type": "siglip_vision_model"}, "vision_feature_layer": 2,
                            "text_config": {"model_type": "qwen3", **DECODER}, "image_token_index": 7}),
}
IDEFICS3, SMOLVLM = "Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"
OF_PICTURES = (LLAVA, IDEFICS3, SMOLVLM)
SQUARES = {"model_type": "idefics3_vision", "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16,
           "patch_size": 4}
CASES |= {
    "idefics3": (IDEFICS3, {"vision_config": SQUARES, "text_config": {"model_type": "llama", "pad_token_id": 22, **DECODER}, "image_token_id": 22,
                            "pad_token_id": 2}),
    "idefics3_tied": (IDEFICS3, {"vision_config": {**SQUARES, "image_size": 8, "patch_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-3,
                                                   "num_channels": 1}, "scale_factor": 4, "tie_word_embeddings": True, "image_token_id": 5,
                                 "text_config": {"model_type": "llama", "pad_token_id": 5, "tie_word_embeddings": True, **DECODER}, "pad_token_id": 2}),
}
CASES["smolvlm"] = (SMOLVLM, {"vision_config": {**SQUARES, "model_type": "smolvlm_vision", "patch_size": 2, "num_channels": 1}, "image_token_id": 6,
                              "scale_factor": 4, "text_config": {"model_type": "llama", "pad_token_id": 5, **DECODER}, "pad_token_id": 2})
TOWER = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 8, "patch_size": 4}
RAGGED = {**TOWER, "image_size": 10, "num_channels": 1, "layer_norm_eps": 1e-3}
CASES |= {
    "clip_vision": ("CLIPVisionModel", {**RAGGED, "hidden_act": "gelu"}),
    "clip_classes": ("CLIPForImageClassification", {"vision_config": TOWER, "id2label": CLASSES, "projection_dim": 8}),
    "siglip_vision": ("SiglipVisionModel", TOWER),
    "siglip_classes": ("SiglipForImageClassification", {"vision_config": {**RAGGED, "hidden_act": "quick_gelu"}, "id2label": CLASSES}),
}
MOBILENET = {"num_channels": 3, "depth_multiplier": 0.1, "depth_divisible_by": 4, "min_depth": 4, "expand_ratio": 2.5, "finegrained_output": False,
             "id2label": CLASSES}
CASES["mobilenet_v2"] = ("MobileNetV2ForImageClassification", {**MOBILENET, "image_size": 37})
CASES["mobilenet_v2_dilated"] = ("MobileNetV2ForImageClassification", {**MOBILENET, "image_size": 34, "output_stride": 8, "tf_padding": False,
                                                                       "first_layer_is_expansion": False, "layer_norm_eps": 1e-4})


def small_vgg(with_norms):
    import torchvision
    model = torchvision.models.VGG(torchvision.models.vgg.make_layers([4, "M", 6, 6, "M"], with_norms), init_weights=False)
    widths, parts = [6 * 49, 8, 8, 5], []
    for n_in, n_out in zip(widths, widths[1:]):
        parts += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU(), torch.nn.Dropout()]
    model.classifier = torch.nn.Sequential(*parts[:-2])
    return model


def small_densenet():
    import torchvision
    return torchvision.models.DenseNet(growth_rate=4, block_config=(2, 3), num_init_features=8, bn_size=2, num_classes=5)


def small_resnext():
    import torchvision
    block = torchvision.models.resnet.Bottleneck
    model = torchvision.models.ResNet(block, [1, 1, 1, 1], groups=2, width_per_group=48)
    model.conv1, model.bn1, model.inplanes = torch.nn.Conv2d(3, 8, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(8), 8
    model.layer1, model.layer2 = model._make_layer(block, 8, 2), model._make_layer(block, 16, 1, stride=2)
    model.layer3 = model.layer4 = torch.nn.Identity()
    model.fc = torch.nn.Linear(64, 5)
    return model


# Models of torchvision: what makes one, and its config.json here.
TORCHVISION = {
    "vgg": (lambda: small_vgg(False), {"model_type": "vgg", "batch_norm": False, "image_size": 24}),
    "vgg_bn": (lambda: small_vgg(True), {"model_type": "vgg", "batch_norm": True, "image_size": 37}),
    "densenet": (small_densenet, {"model_type": "densenet", "growth_rate": 4, "block_config": [2, 3], "num_init_features": 8, "bn_size": 2,
                                  "image_size": 35}),
    "resnext": (small_resnext, {"model_type": "resnet", "groups": 2, "width_per_group": 48, "embedding_size": 8, "depths": [2, 1],
                                "hidden_sizes": [32, 64], "image_size": 33}),
}
for _, one in TORCHVISION.values():
    one.update(num_labels=5, num_channels=3)
    if one["model_type"] == "vgg":
        one.update(depths=[1, 2], hidden_sizes=[4, 6], classifier_hidden=8)

BATCH, SEQ = 3, 10
HELD = [10, 7, 1]  # tokens of each row that are no padding


def text_inputs(config):
    tokens = torch.randint(3, config.vocab_size, (BATCH, SEQ))
    types = torch.randint(0, getattr(config, "type_vocab_size", 1), (BATCH, SEQ))
    mask = torch.tensor([[1 if t < n else 0 for t in range(SEQ)] for n in HELD])
    ends = torch.tensor([[n] * SEQ for n in HELD])
    positions = torch.arange(SEQ).repeat(BATCH, 1)
    first = config.pad_token_id + 1 if config.model_type == "roberta" else 0
    given = {"input_ids": tokens, "token_type_ids": types, "attention_mask": mask, "position_ids": positions + first}
    if config.model_type == "distilbert":  # it has no types, and counts its positions itself
        del given["token_type_ids"], given["position_ids"]
        return given, {"tokens": tokens, "key_ends": ends, "positions": positions}
    return given, {"tokens": tokens, "token_types": types, "key_ends": ends, "positions": positions}


def source_inputs(config, fields):
    n = fields.get("n_positions", fields.get("source_positions"))
    most = config.vocab_size - (config.model_type == "marian")  # whose embedding of padding has no gradient
    source, tokens = torch.randint(0, most, (BATCH, n)), torch.randint(0, most, (BATCH, SEQ))
    lengths = torch.tensor([n, n - 4, 1])
    mask = (torch.arange(n)[None, :] < lengths[:, None]).long()
    given = {"input_ids": source, "attention_mask": mask, "decoder_input_ids": tokens}
    return given, {"source": source, "source_length": lengths, "tokens": tokens, "positions": torch.arange(SEQ).repeat(BATCH, 1)}


SQUARED = ("idefics3", "smolvlm")
PICTURES, PICTURE_SEQ = (0, 1, 3), 20  # of each row, and tokens of one


def picture_inputs(config):
    vision, image = config.vision_config, config.image_token_id
    n_rows = (vision.image_size // vision.patch_size) ** 2 + (vision.model_type == "clip_vision_model")
    n_rows = n_rows // config.scale_factor**2 if config.model_type in SQUARED else n_rows - (config.vision_feature_select_strategy == "default")
    tokens = torch.randint(0, config.text_config.vocab_size, (BATCH, PICTURE_SEQ))
    tokens[tokens == image] = 1
    merged = torch.arange(BATCH * PICTURE_SEQ).reshape(BATCH, PICTURE_SEQ)
    pictures = torch.zeros(BATCH, max(PICTURES), vision.num_channels, vision.image_size, vision.image_size)
    for row, n in enumerate(PICTURES):
        pictures[row, :n] = torch.randn(pictures[row, :n].shape)
        for i in range(n):
            places = slice(1 + i * (n_rows + 1), 1 + i * (n_rows + 1) + n_rows)
            tokens[row, places] = image
            merged[row, places] = BATCH * PICTURE_SEQ + (row * max(PICTURES) + i) * n_rows + torch.arange(n_rows)
    seen = pictures if config.model_type in SQUARED else torch.cat([pictures[row, :n] for row, n in enumerate(PICTURES)])
    positions = torch.arange(PICTURE_SEQ).repeat(BATCH, 1)
    return {"input_ids": tokens, "pixel_values": seen}, {"tokens": tokens, "positions": positions, "merged_rows": merged, "pictures": pictures}


def as_in_files(model):
    """Tensors by the names of a model folder, which are not always those of the modules."""
    if not hasattr(model, "save_pretrained"):
        return {key: value for key, value in model.state_dict().items() if value.is_floating_point()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def with_values(model, value_of):
    """A copy of the model whose parameters are value_of(parameter), numbers where it is a truth, zeros where it is None."""
    other = copy.deepcopy(model)
    for mine, theirs in zip(other.parameters(), model.parameters()):
        value = value_of(theirs)
        mine.data = torch.zeros_like(mine) if value is None else torch.zeros_like(mine) + value
    for buffer in other.buffers():  # statistics have no gradient
        buffer.zero_()
    return other


def made_model(name):
    """The model, its config.json, its architecture, and the fields of its case."""
    if name in TORCHVISION:
        build, config = TORCHVISION[name]
        return build().eval(), config, None, config
    architecture, fields = CASES[name]
    kind = getattr(transformers, architecture)
    options = {"add_pooling_layer": False} if architecture == "BertModel" else {}
    config = kind.config_class(**fields)
    config.architectures = [architecture]
    return kind(config, **options).eval(), config, architecture, fields


def make(name):
    torch.manual_seed(len(name))
    model, config, architecture, fields = made_model(name)
    with torch.no_grad():
        for one in model.parameters():
            if one.requires_grad:  # not Marian's sines, which no file holds
                one.add_(torch.randn_like(one) * 0.1)
        for key, one in model.named_buffers():
            if key.endswith("running_mean"):
                one.copy_(torch.randn_like(one) * 0.1)
            if key == "final_logits_bias":
                one.copy_(torch.randn_like(one))
            if key.endswith("running_var"):
                one.copy_(torch.rand_like(one) + 0.5)
    if name.endswith("_untied"):  # transformers 5 ties the head, unless a file holds one of its own
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    seen = fields if "image_size" in fields else fields.get("vision_config", {})
    if "image_size" in seen and architecture not in OF_PICTURES:
        pixels = torch.randn(BATCH, seen.get("num_channels", 3), seen["image_size"], seen["image_size"])
        given, inputs = {"pixel_values": pixels}, {"pixels": pixels}
    elif architecture in OF_PICTURES:
        given, inputs = picture_inputs(config)
    elif getattr(config, "is_encoder_decoder", False):
        given, inputs = source_inputs(config, fields)
    else:
        given, inputs = text_inputs(config)
    result = model(pixels) if name in TORCHVISION else model(**given)
    if name in TORCHVISION:
        output = result
    elif architecture == "BertForQuestionAnswering":
        output = torch.stack([result.start_logits, result.end_logits], -1)
    else:
        output = result.logits if "logits" in result else result.last_hidden_state
    if name.endswith("_embeddings"):
        share = given["attention_mask"][:, :, None].float()
        output = (output * share).sum(1) / share.sum(1)
    dout = torch.randn_like(output)
    if "attention_mask" in given and not config.is_encoder_decoder and output.dim() == 3:  # rows of padding count nowhere
        dout = dout * given["attention_mask"][:, :, None]
    tensors, loss = {"output": output, "dout": dout}, (output * dout).sum()
    if architecture in ("CLIPVisionModel", "SiglipVisionModel"):
        tensors["output_2"], tensors["dout_2"] = result.pooler_output, torch.randn_like(result.pooler_output)
        loss = loss + (tensors["output_2"] * tensors["dout_2"]).sum()
    loss.backward()
    for key, value in inputs.items():
        tensors["i:" + key] = value if value.is_floating_point() else value.int()
    for key, value in as_in_files(model).items():
        tensors["w:" + key] = value
    has_gradient = {key for key, value in as_in_files(with_values(model, lambda one: one.grad is not None)).items()
                    if value.any()}
    for key, value in as_in_files(with_values(model, lambda one: one.grad)).items():
        if key in has_gradient:
            tensors["g:" + key] = value
    described = config if name in TORCHVISION else config.to_dict()
    if name.endswith("_untied"):  # as the public files say it
        described["tie_word_embeddings"] = False
    meta = {"config": json.dumps(described), "batch": str(BATCH),
            "seq": str(PICTURE_SEQ if architecture in OF_PICTURES else SEQ)}
    return {key: value.detach().clone().contiguous() for key, value in tensors.items()}, meta


def main():
    folder = pathlib.Path(sys.argv[1])
    names = sys.argv[2:] or [*CASES, *TORCHVISION]
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        tensors, meta = make(name)
        save_file(tensors, folder / f"{name}.safetensors", metadata=meta)
        print(name, sum(value.nbytes for value in tensors.values()))


if __name__ == "__main__":
    main()
