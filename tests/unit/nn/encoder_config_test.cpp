// The config.json of an encoder, against transformers 5.24.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "nn/model.h"
#include "nn/shape.h"
#include "unit/base/error_of.h"

namespace octet::nn_encoder_config_test {
namespace {

using test::error_of;
using testing::HasSubstr;

ModelSpec read(const std::string& kind, const std::string& more) {
  const std::string sizes =
      kind == "distilbert" ? R"("dim":12,"hidden_dim":20,"n_layers":2,"n_heads":3)"
                           : R"("hidden_size":12,"intermediate_size":20,"num_hidden_layers":2,)"
                             R"("num_attention_heads":3)";
  return parse_hf_config(R"({"model_type":")" + kind + R"(","vocab_size":17,)" + sizes + more + "}",
                         "c");
}

std::string error(const std::string& kind, const std::string& more) {
  return error_of([&] { read(kind, more); });
}

TEST(EncoderConfig, positions_of_roberta_begin_behind_its_padding) {
  const auto longest = [](const std::string& pad) {
    return longest_row(read("roberta", R"(,"max_position_embeddings":514)" + pad));
  };
  EXPECT_EQ(longest(""), 512);
  EXPECT_EQ(longest(R"(,"pad_token_id":1)"), 512);
  EXPECT_EQ(longest(R"(,"pad_token_id":3)"), 510);
  EXPECT_EQ(longest(R"(,"pad_token_id":0)"), 513);
  EXPECT_EQ(longest(R"(,"pad_token_id":-1)"), 514);
  EXPECT_EQ(longest_row(read("bert", R"(,"max_position_embeddings":30,"pad_token_id":5)")), 30);
  EXPECT_THAT(error("roberta", R"(,"pad_token_id":null)"), HasSubstr("'pad_token_id': expected"));
  EXPECT_THAT(error("roberta", R"(,"max_position_embeddings":9,"pad_token_id":8)"),
              HasSubstr("expected more rows than pad_token_id = 8 + 1, got 9"));
}

TEST(EncoderConfig, what_would_mask_causally_is_refused) {
  for (const char* kind : {"bert", "roberta"}) {
    EXPECT_THAT(error(kind, R"(,"is_decoder":true)"),
                HasSubstr("'is_decoder': expected false for model_type"));
    EXPECT_EQ(error(kind, R"(,"is_decoder":false)"), "no error");
  }
}

// transformers' own epsilon is fixed.
TEST(EncoderConfig, distilbert_has_one_epsilon) {
  EXPECT_EQ(read("distilbert", "").norm_eps, 1e-12);
  EXPECT_THAT(error("distilbert", R"(,"layer_norm_eps":1e-5)"),
              HasSubstr("'layer_norm_eps': expected 1e-12"));
}

TEST(EncoderConfig, relu_of_a_vision_transformer_is_its_mlp_s) {
  const ModelSpec spec = read("vit", R"(,"hidden_act":"relu")");
  EXPECT_TRUE(spec.mlp_relu);
  EXPECT_FALSE(read("vit", R"(,"hidden_act":"gelu")").mlp_relu);
  EXPECT_THAT(hf_config_text(spec), HasSubstr(R"("hidden_act": "relu")"));
  EXPECT_THAT(error("bert", R"(,"hidden_act":"relu")"), HasSubstr("'hidden_act': expected one of"));
}

TEST(EncoderConfig, a_number_of_labels_counts_before_their_names) {
  const auto classes = [](const std::string& more) {
    return read("bert", R"(,"architectures":["BertForSequenceClassification"])" + more).classes;
  };
  EXPECT_EQ(classes(""), 2);
  EXPECT_EQ(classes(R"(,"num_labels":5)"), 5);
  EXPECT_EQ(classes(R"(,"id2label":{"0":"a","1":"b","2":"c"})"), 3);
  EXPECT_EQ(classes(R"(,"id2label":{"0":"a","1":"b","2":"c"},"num_labels":4)"), 4);
}

TEST(EncoderConfig, other_classes_of_transformers_are_read_for_what_they_share) {
  const auto head = [](const std::string& kind, const std::string& architecture) {
    return head_of(read(kind, R"(,"architectures":[")" + architecture + R"("])")).head;
  };
  EXPECT_EQ(head("bert", "BertForPreTraining"), ModelHead::masked);
  EXPECT_EQ(head("bert", "BertLMHeadModel"), ModelHead::masked);
  EXPECT_EQ(head("bert", "BertForNextSentencePrediction"), ModelHead::features);
  EXPECT_EQ(head("bert", "BertForTokenClassification"), ModelHead::features);
  EXPECT_EQ(head("roberta", "RobertaForTokenClassification"), ModelHead::features);
  EXPECT_EQ(head("distilbert", "DistilBertForTokenClassification"), ModelHead::features);
  EXPECT_EQ(head("deit", "DeiTForImageClassificationWithTeacher"), ModelHead::features);
  EXPECT_THAT(error("bert", R"(,"architectures":["BertForHaiku"])"),
              HasSubstr("BertForMultipleChoice, got \"BertForHaiku\""));
}

// They are another head's, and are written as they came.
TEST(EncoderConfig, classes_that_are_no_list_are_an_error_that_names_the_key) {
  for (const char* value : {R"("BertModel")", "\"\"", "5", "true", R"({"0":"BertModel"})"}) {
    EXPECT_THAT(error("bert", fmt::format(R"(,"architectures":{})", value)),
                HasSubstr("'architectures': expected a list, got"));
  }
  EXPECT_EQ(error("bert", R"(,"architectures":null)"), "no error");
  EXPECT_EQ(error("bert", R"(,"architectures":[])"), "no error");
  EXPECT_THAT(error("bert", R"(,"architectures":[5])"),
              HasSubstr("'architectures': expected one of"));
}

TEST(EncoderConfig, labels_are_no_part_of_a_model_without_a_classifier) {
  for (const char* architecture : {"BertModel", "BertForMaskedLM", "BertForTokenClassification"}) {
    const ModelSpec spec =
        read("bert", R"(,"id2label":{"0":"x","1":"y","2":"z"},"architectures":[")" +
                         std::string(architecture) + R"("])");
    EXPECT_EQ(parse_hf_config(hf_config_text(spec), "c"), spec) << architecture;
  }
}

TEST(EncoderConfig, names_of_old_files_are_those_of_new_ones) {
  const ModelSpec bert = read("bert", R"(,"architectures":["BertForPreTraining"])");
  const auto name = [&](const std::string& stored) {
    return parameter_name(bert, stored).value_or("none");
  };
  EXPECT_EQ(name("bert.embeddings.LayerNorm.gamma"), "bert.embeddings.LayerNorm.weight");
  EXPECT_EQ(name("encoder.layer.1.attention.output.LayerNorm.beta"),
            "bert.encoder.layer.1.attention.output.LayerNorm.bias");
  EXPECT_EQ(name("cls.predictions.transform.LayerNorm.gamma"),
            "cls.predictions.transform.LayerNorm.weight");
  EXPECT_EQ(name("cls.seq_relationship.weight"), "none");
}

// Names by transformers 5 of the modules of a ViTForImageClassification.
TEST(EncoderConfig, modules_of_vision_transformers_have_names_of_their_own) {
  ModelSpec spec = read("vit", "");
  spec.layers = 1;
  const ModelDef& def = model_def(spec.kind);
  std::vector<std::string> names;
  for (const ParameterSpec& one : model_parameters(spec)) {
    const bool is_linear = one.name.find("layer.0.") != one.name.npos && one.shape.size() == 2;
    if (is_linear) names.push_back(def.module_name(one.name.substr(0, one.name.rfind('.'))));
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         "vit.layers.0.attention.q_proj", "vit.layers.0.attention.k_proj",
                         "vit.layers.0.attention.v_proj", "vit.layers.0.attention.o_proj",
                         "vit.layers.0.mlp.fc1", "vit.layers.0.mlp.fc2"));
  EXPECT_EQ(def.module_name("vit.encoder.layer.11.output.dense.lora_A.weight"),
            "vit.layers.11.mlp.fc2.lora_A.weight");
  EXPECT_EQ(def.module_name("classifier"), "classifier");
}

// A stage of two blocks and one of one, where `more` does not say otherwise.
std::string resnet(const std::string& more) {
  std::string text = R"({"model_type":"resnet","embedding_size":8,"image_size":32)";
  if (more.find("depths") == more.npos) text += R"(,"depths":[2,1])";
  if (more.find("hidden_sizes") == more.npos) text += R"(,"hidden_sizes":[8,16])";
  return text + more + "}";
}

TEST(ResNetConfig, every_key_is_read_written_or_refused) {
  const auto error = [](const std::string& more) {
    return error_of([&] { parse_hf_config(resnet(more), "c"); });
  };
  const ModelSpec spec =
      parse_hf_config(resnet(R"(,"layer_type":"bottleneck","downsample_in_first_stage":true,)"
                             R"("downsample_in_bottleneck":true,"num_channels":1,"num_labels":7)"),
                      "c");
  EXPECT_EQ(spec.layer_type, ResidualBlock::bottleneck);
  EXPECT_EQ(spec.depths, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(spec.layers, 3);
  EXPECT_EQ(spec.hidden, 16);
  EXPECT_TRUE(spec.downsample_in_first_stage && spec.downsample_in_bottleneck);
  EXPECT_EQ(parse_hf_config(hf_config_text(spec), "c"), spec);
  EXPECT_EQ(parse_hf_config(resnet(""), "c").layer_type, ResidualBlock::bottleneck);
  EXPECT_THAT(error(R"(,"hidden_act":"gelu")"), HasSubstr("'hidden_act': expected \"relu\""));
  EXPECT_THAT(error(R"(,"layer_type":"wide")"), HasSubstr("expected one of basic, bottleneck"));
  EXPECT_THAT(error(R"(,"cifar":true)"), HasSubstr("'layer_type': expected basic with cifar"));
  EXPECT_THAT(error(R"(,"depths":[2,1,1])"), HasSubstr("expected as many as depths = [2, 1, 1]"));
  EXPECT_THAT(error(R"(,"depths":3)"), HasSubstr("'depths': expected a list of integers, got 3"));
  EXPECT_THAT(error(R"(,"depths":[])"), HasSubstr("'depths': expected a list of integers, got []"));
  EXPECT_THAT(error(R"(,"hidden_sizes":[8,0])"), HasSubstr("'hidden_sizes': expected a list of"));
  EXPECT_THAT(error(R"(,"hidden_sizes":[8,18])"), HasSubstr("expected multiples of 4 with"));
  EXPECT_THAT(error(R"(,"depths":[4096,1])"),
              HasSubstr("'depths': expected at most 4096 blocks in all, got [4096, 1]"));
  const ModelSpec other = parse_hf_config(resnet(R"(,"batch_norm_eps":1e-3)"), "c");
  EXPECT_EQ(other.norm_eps, 1e-3);
  EXPECT_EQ(parse_hf_config(hf_config_text(other), "c"), other);
  // Widths that nobody says double up to the bound of the key.
  ModelSpec deep{.kind = ModelKind::resnet, .depths = std::vector<int64_t>(70, 1)};
  EXPECT_EQ(fault_of(deep).value().field, "hidden_sizes");
}

TEST(ResNetConfig, torchvision_s_names_are_those_of_transformers) {
  const ModelSpec spec = parse_hf_config(resnet(""), "c");
  const auto name = [&](const char* stored) { return parameter_name(spec, stored).value_or("-"); };
  EXPECT_EQ(name("conv1.weight"), "resnet.embedder.embedder.convolution.weight");
  EXPECT_EQ(name("bn1.running_var"), "resnet.embedder.embedder.normalization.running_var");
  EXPECT_EQ(name("layer2.0.conv3.weight"),
            "resnet.encoder.stages.1.layers.0.layer.2.convolution.weight");
  EXPECT_EQ(name("layer1.1.bn2.bias"),
            "resnet.encoder.stages.0.layers.1.layer.1.normalization.bias");
  EXPECT_EQ(name("layer2.0.downsample.1.running_mean"),
            "resnet.encoder.stages.1.layers.0.shortcut.normalization.running_mean");
  EXPECT_EQ(name("fc.bias"), "classifier.1.bias");
  EXPECT_EQ(name("encoder.stages.0.layers.0.layer.0.convolution.weight"),
            "resnet.encoder.stages.0.layers.0.layer.0.convolution.weight");
  EXPECT_EQ(name("bn1.num_batches_tracked"), "-");
}

// Counts of torchvision's page.
TEST(ResNetConfig, has_the_parameters_that_its_authors_counted) {
  const auto count = [](ResidualBlock block, std::vector<int64_t> depths, bool cifar) {
    return parameter_count({.kind = ModelKind::resnet,
                            .classes = cifar ? 10 : 1000,
                            .depths = std::move(depths),
                            .layer_type = block,
                            .cifar = cifar});
  };
  EXPECT_EQ(count(ResidualBlock::basic, {2, 2, 2, 2}, false), 11'689'512);
  EXPECT_EQ(count(ResidualBlock::basic, {3, 4, 6, 3}, false), 21'797'672);
  EXPECT_EQ(count(ResidualBlock::bottleneck, {}, false), 25'557'032);
  EXPECT_EQ(count(ResidualBlock::basic, {}, true), 269'722);
}

std::string mobilenet(const std::string& more) {
  return R"({"model_type":"mobilenet_v2")" + more + "}";
}

TEST(MobileNetConfig, every_key_is_read_written_or_refused) {
  const ModelSpec spec = parse_hf_config(
      mobilenet(R"(,"depth_multiplier":0.35,"depth_divisible_by":4,"min_depth":6,"expand_ratio":3,)"
                R"("output_stride":16,"first_layer_is_expansion":false,"finegrained_output":false,)"
                R"("tf_padding":false,"layer_norm_eps":1e-5,"image_size":96,"num_channels":1)"),
      "c");
  EXPECT_EQ(spec.depth_multiplier, 0.35);
  EXPECT_EQ(spec.depth_divisible_by, 4);
  EXPECT_EQ(spec.min_depth, 6);
  EXPECT_EQ(spec.expand_ratio, 3);
  EXPECT_EQ(spec.output_stride, 16);
  EXPECT_FALSE(spec.first_layer_is_expansion || spec.finegrained_output || spec.tf_padding);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.hidden, 448);
  EXPECT_EQ(parse_hf_config(hf_config_text(spec), "c"), spec);
  EXPECT_EQ(parse_hf_config(mobilenet(""), "c").norm_eps, 1e-3);
  EXPECT_EQ(parse_hf_config(mobilenet(R"(,"depth_multiplier":0.35)"), "c").hidden, 1280);
  EXPECT_EQ(parse_hf_config(mobilenet(R"(,"depth_multiplier":1.4)"), "c").hidden, 1792);
  const auto error = [](const std::string& more) {
    return error_of([&] { parse_hf_config(mobilenet(more), "c"); });
  };
  EXPECT_THAT(error(R"(,"hidden_act":"relu")"), HasSubstr("'hidden_act': expected \"relu6\""));
  EXPECT_THAT(error(R"(,"output_stride":12)"), HasSubstr("'output_stride': expected 2, 4, 8"));
  EXPECT_THAT(error(R"(,"image_size":[224,192])"), HasSubstr("'image_size'"));
}

TEST(MobileNetConfig, torchvision_s_names_are_those_of_transformers) {
  const ModelSpec spec = parse_hf_config(mobilenet(""), "c");
  const auto name = [&](const char* stored) { return parameter_name(spec, stored).value_or("-"); };
  EXPECT_EQ(name("features.0.0.weight"), "mobilenet_v2.conv_stem.first_conv.convolution.weight");
  EXPECT_EQ(name("features.0.1.bias"), "mobilenet_v2.conv_stem.first_conv.normalization.bias");
  EXPECT_EQ(name("features.1.conv.0.0.weight"),
            "mobilenet_v2.conv_stem.conv_3x3.convolution.weight");
  EXPECT_EQ(name("features.1.conv.2.running_var"),
            "mobilenet_v2.conv_stem.reduce_1x1.normalization.running_var");
  EXPECT_EQ(name("features.17.conv.1.1.running_mean"),
            "mobilenet_v2.layer.15.conv_3x3.normalization.running_mean");
  EXPECT_EQ(name("features.2.conv.3.num_batches_tracked"), "-");
  EXPECT_EQ(name("features.18.0.weight"), "mobilenet_v2.conv_1x1.convolution.weight");
  EXPECT_EQ(name("classifier.1.weight"), "classifier.weight");
  EXPECT_EQ(name("layer.0.expand_1x1.convolution.weight"),
            "mobilenet_v2.layer.0.expand_1x1.convolution.weight");
}

TEST(DenseNetConfig, names_of_public_files_are_those_of_torchvision) {
  const ModelSpec spec =
      parse_hf_config(R"({"model_type":"densenet","block_config":[6,12,24,16]})", "c");
  const auto name = [&](const char* stored) { return parameter_name(spec, stored).value_or("-"); };
  EXPECT_EQ(name("features.denseblock1.denselayer2.norm.1.weight"),
            "features.denseblock1.denselayer2.norm1.weight");
  EXPECT_EQ(name("features.denseblock1.denselayer2.conv.2.weight"),
            "features.denseblock1.denselayer2.conv2.weight");
  EXPECT_EQ(name("features.transition1.norm.weight"), "features.transition1.norm.weight");
}

// Counts of torchvision's page.
TEST(ConvolutionalConfigs, have_the_parameters_that_their_authors_counted) {
  EXPECT_EQ(parameter_count({.kind = ModelKind::mobilenet_v2, .classes = 1000}), 3'504'872);
  EXPECT_EQ(parameter_count({.kind = ModelKind::densenet, .classes = 1000}), 7'978'856);
  EXPECT_EQ(parameter_count({.kind = ModelKind::vgg, .classes = 1000, .classifier_hidden = 4096}),
            138'365'992);
  EXPECT_EQ(parameter_count({.kind = ModelKind::vgg,
                             .classes = 1000,
                             .classifier_hidden = 4096,
                             .batch_norm = false}),
            138'357'544);
  EXPECT_EQ(parameter_count({.kind = ModelKind::resnet,
                             .classes = 1000,
                             .layer_type = ResidualBlock::bottleneck,
                             .groups = 32,
                             .width_per_group = 4}),
            25'028'904);
}

}  // namespace
}  // namespace octet::nn_encoder_config_test
