// Folders for programs of the ecosystem: packed INT8, shapes of scales, words of warning.
#include <gtest/gtest.h>

#include "base/json.h"
#include "infer/export.h"
#include "io/model_files.h"
#include "ir/builder.h"
#include "unit/base/error_of.h"
#include "unit/ptq/tiny_model.h"

namespace octet::ptq_folders_test {
namespace {

using test::ScratchFolder;

class Folders : public testing::Test {
 protected:
  void SetUp() override { put(30, 64); }
  void put(int64_t hidden, int64_t ffn) {
    spec_ = test::tiny_spec(ModelKind::llama);
    spec_.hidden = hidden, spec_.ffn = ffn, spec_.kv_heads = 1;
    spec_.heads = hidden == 30 ? 3 : 2;
    spec_.head_dim = 0;
    spec_ = resolved(spec_);
    test::put_tiny_model(folder_, spec_);
  }
  PtqResult quantize(const std::string& out, const PtqOptions& options) {
    said_.clear();
    const Log log([&](LogLevel level, const std::string& line) {
      if (level == LogLevel::warning) said_ += line + "\n";
    });
    const ModelSource source = find_model_source(posix_files(), folder_.path());
    return quantize_model(posix_files(),
                          {.source = source,
                           .options = checked(options),
                           .out = folder_ / out,
                           .rows = test::tiny_rows(source.spec, 2, 16)},
                          backend_, {.log = log});
  }
  Json quantization(const std::string& out) const {
    return Json::parse(posix_files().read_text(folder_ / (out + "/config.json")))
        .at("quantization_config");
  }

  ModelSpec spec_;
  ScratchFolder folder_;
  Backend backend_ = cpu::make_backend(2, cpu::detect_isa());
  std::string said_;
  int n_ = 0;
};

constexpr const char* kDown = "model.layers.0.mlp.down_proj";
constexpr const char* kQuery = "model.layers.0.self_attn.q_proj";

// 30 columns: the last word of a row is not full.
TEST_F(Folders, int8_of_weights_alone_is_packed_and_read_back) {
  for (const auto scaling : {WeightScaling::tensor, WeightScaling::channel, WeightScaling::group}) {
    const std::string out(enum_name(scaling));
    const PtqResult result =
        quantize(out, {.format = PtqFormat::int8, .method = PtqMethod::gptq, .weights = scaling});
    EXPECT_EQ(result.layout, PtqLayout::ecosystem);
    const Json json = quantization(out);
    EXPECT_EQ(json.at("format"), "pack-quantized");
    const Json& group = json.at("config_groups").at("group_0");
    EXPECT_EQ(group.at("format"), "pack-quantized");
    EXPECT_EQ(group.at("weights").at("strategy"), "channel");
    EXPECT_TRUE(group.at("input_activations").is_null());
    const ModelFiles files = ModelFiles::open(posix_files(), folder_ / out);
    const StoredTensor& packed = files.at(std::string(kQuery) + ".weight_packed");
    EXPECT_EQ(packed.stored, SafeDtype::i32);
    EXPECT_EQ(packed.shape, (std::vector<int64_t>{30, 8}));
    EXPECT_EQ(files.find(std::string(kQuery) + ".weight"), nullptr);
    EXPECT_EQ(files.at(std::string(kQuery) + ".weight_scale").shape, (std::vector<int64_t>{30, 1}));
    const std::vector<std::byte> bytes = files.read(packed.name);
    const WeightReader reader(posix_files(), folder_ / out, spec_);
    const std::string name = std::string(kQuery) + ".weight";
    const std::vector<float> values = reader.read(name);
    const WeightReader::Scales& scales = *reader.scales(name);
    for (size_t r = 0; r < 30; ++r) {
      for (size_t c = 0; c < 30; ++c) {
        const int q = std::to_integer<int>(bytes[r * 32 + c]) - 128;
        ASSERT_EQ(values[r * 30 + c], static_cast<float>(q) * scales.values[r]) << r << " " << c;
      }
      EXPECT_EQ(bytes[r * 32 + 31], std::byte{0});
    }
    std::vector<float> part(37);
    reader.read(name, 25, part);
    EXPECT_EQ(part, std::vector<float>(values.begin() + 25, values.begin() + 62));
    EXPECT_TRUE(reader.inputs().empty());
  }
}

TEST_F(Folders, packed_weights_are_converted_as_they_are_and_to_bf16) {
  quantize("q", {.format = PtqFormat::int8, .method = PtqMethod::gptq});
  const ModelSource source = find_model_source(posix_files(), folder_ / "q");
  export_model(posix_files(), source, folder_ / "same", {});
  const ModelFiles before = ModelFiles::open(posix_files(), folder_ / "q");
  const ModelFiles after = ModelFiles::open(posix_files(), folder_ / "same");
  EXPECT_EQ(before.names(), after.names());
  for (const std::string& name : before.names()) {
    EXPECT_EQ(before.read(name), after.read(name)) << name;
    EXPECT_EQ(before.at(name).shape, after.at(name).shape) << name;
    EXPECT_EQ(before.at(name).stored, after.at(name).stored) << name;
  }
  EXPECT_EQ(quantization("q"), quantization("same"));
  export_model(posix_files(), source, folder_ / "wide", {.dtype = ExportDtype::f32});
  const std::string name = std::string(kDown) + ".weight";
  EXPECT_EQ(WeightReader(posix_files(), folder_ / "wide", spec_).read(name),
            WeightReader(posix_files(), folder_ / "q", spec_).read(name));
}

TEST_F(Folders, packed_weights_of_another_shape_are_refused) {
  quantize("q", {.format = PtqFormat::int8, .method = PtqMethod::gptq});
  ModelSpec other = spec_;
  other.ffn = 62;
  const auto error = [&](const ModelSpec& spec) {
    return test::error_of([&] { WeightReader(posix_files(), folder_ / "q", spec); },
                          folder_.path());
  };
  EXPECT_EQ(error(spec_), "no error");
  EXPECT_EQ(error(other),
            "[weights] DIR/q: 'model.layers.0.mlp.gate_proj.weight_packed' must be I32 [62,8], got "
            "I32 [64,8]");
  other.ffn = 63;  // as many words in a row of down_proj
  EXPECT_EQ(error(other).find("[weights] DIR/q: 'model.layers.0.mlp."), 0u);
}

TEST_F(Folders, a_grid_of_one_block_has_two_extents) {
  for (const PtqFormat format : {PtqFormat::fp8_block, PtqFormat::e4m3}) {
    const std::string out(enum_name(format));
    quantize(out, {.format = format, .method = PtqMethod::max});
    const ModelFiles files = ModelFiles::open(posix_files(), folder_ / out);
    const bool is_block = format == PtqFormat::fp8_block;
    const std::string suffix = is_block ? ".weight_scale_inv" : ".weight_scale";
    EXPECT_EQ(files.at(kDown + suffix).shape,
              (is_block ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{1}));
    EXPECT_EQ(said_, "");
  }
}

TEST_F(Folders, partial_blocks_are_named) {
  put(136, 64);
  quantize("q", {.format = PtqFormat::fp8_block, .method = PtqMethod::max});
  EXPECT_EQ(said_,
            "[ptq] 'model.layers.0.mlp.down_proj.weight' [136,64] has partial blocks of 128 x 128, "
            "which not every program reads; e4m3 has none\n");
}

TEST_F(Folders, linears_that_read_one_value_and_are_not_all_kept_are_named) {
  const PtqOptions split{
      .format = PtqFormat::e4m3, .method = PtqMethod::max, .keep = {"lm_head", "*.1.k_proj"}};
  quantize("split", split);
  EXPECT_EQ(said_,
            "[ptq] --keep: layers.1.k_proj stay as they are beside layers.1.q_proj, v_proj, which "
            "read the same values: servers that fuse them refuse the folder (keep all of them or "
            "none)\n");
  quantize("whole", {.format = PtqFormat::e4m3,
                     .method = PtqMethod::max,
                     .keep = {"lm_head", "*.q_proj", "*.k_proj", "*.v_proj", "*down_proj"}});
  EXPECT_EQ(said_, "");
  PtqOptions own = split;
  own.format = PtqFormat::hif8;  // read by Octet alone, which fuses none
  quantize("own", own);
  EXPECT_EQ(said_, "");
}

TEST_F(Folders, what_vllm_has_no_scheme_for_is_named) {
  const auto said = [&](const PtqOptions& options) {
    quantize(fmt::format("scheme-{}", n_++), options);
    return said_;
  };
  EXPECT_EQ(said({.format = PtqFormat::int8, .method = PtqMethod::direct}),
            "[ptq] transformers loads INT8 inputs scaled by the tensor at hand, vLLM has no scheme "
            "for them\n");
  const PtqOptions groups{.format = PtqFormat::e4m3,
                          .method = PtqMethod::max,
                          .weights = WeightScaling::group,
                          .activations = ActivationScaling::token};
  EXPECT_EQ(said(groups), "");  // narrower than a group: a scale a row
  EXPECT_EQ(said({.format = PtqFormat::int8, .method = PtqMethod::gptq}), "");
  EXPECT_EQ(said({.format = PtqFormat::e4m3, .method = PtqMethod::max, .keep = {}}),
            "[ptq] a quantized head is loaded by transformers, and by few servers\n");
  put(256, 64);
  EXPECT_EQ(said(groups),
            "[ptq] transformers loads scales for groups of weights, vLLM has no scheme for them\n");
}

TEST_F(Folders, algorithm_1_shares_the_scale_of_an_input_where_it_is_asked_to) {
  put(32, 64);
  PtqOptions options{.format = PtqFormat::e4m3, .method = PtqMethod::algorithm1};
  std::map<bool, std::vector<std::optional<double>>> scales;
  for (const bool shares : {false, true}) {
    options.share_inputs = shares;
    for (const SiteReport& report : quantize(shares ? "shared" : "own", options).reports)
      scales[shares].push_back(report.input_scale);
    EXPECT_EQ(said_.find("--share-inputs decides for one") != said_.npos, !shares) << said_;
  }
  for (size_t i = 0; i < scales[true].size(); i += 7) {  // q k v, o, gate up, down
    EXPECT_EQ(scales[true][i], scales[true][i + 1]);
    EXPECT_EQ(scales[true][i], scales[true][i + 2]);
    EXPECT_EQ(scales[true][i + 4], scales[true][i + 5]);
  }
  EXPECT_NE(scales[true], scales[false]);
}

TEST_F(Folders, scales_of_a_cache_and_of_outputs_are_named_where_they_are_not_used) {
  quantize("q", {.format = PtqFormat::e4m3, .method = PtqMethod::max});
  const auto said = [&](const char* from = "kv_cache_scheme") {
    std::string text;
    const Log log([&](LogLevel, const std::string& line) { text += line; });
    find_model_source(posix_files(), folder_ / "q", log);
    return text.substr(std::min(text.size(), text.find(from)));
  };
  EXPECT_EQ(said(), "");
  Json config = Json::parse(posix_files().read_text(folder_ / "q/config.json"));
  config["quantization_config"]["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "float"}};
  config["quantization_config"]["config_groups"]["group_0"]["output_activations"] = {
      {"num_bits", 8}};
  folder_.put("q/config.json", config.dump());
  const float scale = 0.5f;
  std::vector<TensorSource> sources;
  const ModelFiles files = ModelFiles::open(posix_files(), folder_ / "q");
  std::vector<std::vector<std::byte>> bytes;
  for (const std::string& name : files.names()) bytes.push_back(files.read(name));
  for (size_t i = 0; i < bytes.size(); ++i)
    sources.push_back(span_source(files.at(files.names()[i]), bytes[i]));
  for (const char* name : {"model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.v_scale"})
    sources.push_back(
        span_source(tensor_decl(name, Dtype::f32, {1}), std::as_bytes(std::span(&scale, 1))));
  write_atomically(posix_files(), folder_ / "q/model.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  EXPECT_EQ(said(),
            "kv_cache_scheme, output_activations, 2 scales such as "
            "'model.layers.0.self_attn.k_scale' are not used: the KV cache and outputs are not "
            "quantized");
  config.erase("quantization_config");  // as older versions of ModelOpt write it
  folder_.put("q/config.json", config.dump());
  folder_.put("q/hf_quant_config.json",
              R"({"quantization":{"quant_algo":"FP8","kv_cache_quant_algo":"FP8"}})");
  const std::string of_modelopt = said("kv_cache_quant_algo");
  EXPECT_TRUE(of_modelopt.starts_with("kv_cache_quant_algo, 2 scales such as")) << of_modelopt;
}

TEST_F(Folders, linears_in_sixteen_bits_that_nothing_ignores_are_named) {
  quantize("q", {.format = PtqFormat::e4m3, .method = PtqMethod::max, .keep = {"*.down_proj"}});
  const auto said = [&](const Json& ignore) {
    Json config = Json::parse(posix_files().read_text(folder_ / "q/config.json"));
    config["quantization_config"]["ignore"] = ignore;
    folder_.put("q/config.json", config.dump());
    std::string text;
    const Log log([&](LogLevel, const std::string& line) { text += line; });
    find_model_source(posix_files(), folder_ / "q", log);
    const size_t at = text.find("'model.layers");
    return at == text.npos ? text : text.substr(at);
  };
  EXPECT_EQ(said({"re:.*down_proj"}), "");
  EXPECT_EQ(said({"model.layers.1.mlp.down_proj"}),
            "'model.layers.0.mlp.down_proj' is not in 8 bits, nor in 'ignore' (1 in all): read as "
            "it is stored, where other programs look for scales");
}

// Servers run this: 8 bits have a code -128, and a value beyond the calibrated range has it.
TEST_F(Folders, static_int8_inputs_saturate_at_minus_128) {
  const ActivationQuantizer how{.dtype = Dtype::int8, .target = 127, .scale = 0.5f};
  const std::vector<float> x = {-100, -64, -63.75, -63.7f, 63.5f, 64, 100, 0.25f};
  const std::vector<float> y = {-64, -64, -64, -63.5f, 63.5f, 63.5f, 63.5f, 0};
  EXPECT_EQ(simulated(how, x, 4, *backend_.pool), y);
  Graph graph;
  graph.name = "inputs";
  graph.phase = Phase::typed;
  Builder builder(graph);
  const TensorType type{.dtype = Dtype::f32, .shape = {2, 4}};
  const ValueId in = builder.input(InputKind::batch, "x", type);
  const ValueId w = builder.input(InputKind::parameter, "w", {Dtype::f32, {4, 4}});
  builder.output(
      "y",
      builder.emit1(OpCode::gemm, GemmAttrs{.trans_b = true, .role = GemmRole::forward}, {in, w}));
  const Graph quantized = fake_quantize_inputs(graph, {.linears = {{"w", how}}, .residuals = {}});
  SmallPlan plan(quantized, backend_);
  std::vector<float> eye(16, 0.0f), got(8);
  for (size_t i = 0; i < 4; ++i) eye[5 * i] = 1;
  plan.write("x", std::as_bytes(std::span(x)));
  plan.write("w", std::as_bytes(std::span(eye)));
  plan.run();
  plan.read("y", std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got, y);
}

}  // namespace
}  // namespace octet::ptq_folders_test
