// A decoder that attends to a source: encode writes its caches once, and fill and decode over them
// give the bits of one forward pass over source and text. With a bias by distance too, as T5's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compile/program.h"
#include "infer/batch_inputs.h"
#include "property/cached/bound_functions.h"
#include "property/recipes/tiny_training.h"
#include "unit/base/error_of.h"

namespace octet::with_source {
namespace {

constexpr int64_t kTexts = 2, kTokens = 9, kSource = 5, kWidth = 16, kHeads = 2, kVocab = 24;

// A number a head for keys less than three before the query, and one for those behind.
enum class WithBias {
  no,
  of_all_places,  // of the cache, of which a call's keys have a slice
  of_the_call,
};

// Rows of an encoder, causal attention over the text, then attention to the encoder's rows up to
// each text's source_length.
class Model {
 public:
  static Graph forward(const BatchSize& size, WithBias bias) {
    Model model(size);
    model.build(bias);
    return std::move(model.graph_);
  }
  static std::vector<ParameterSpec> parameters() {
    std::vector<ParameterSpec> specs;
    const auto add = [&](const std::string& name, int64_t rows) {
      specs.push_back({.name = name, .shape = {rows, kWidth}, .std = 0.3});
    };
    add("words", kVocab);
    for (const char* layer : {"encoder", "text", "cross"}) {
      for (const char* matrix : {"q", "k", "v"}) add(fmt::format("{}.{}", layer, matrix), kWidth);
    }
    add("head", kVocab);
    for (const char* name : {"near", "far"})
      specs.push_back({.name = name, .shape = {kHeads}, .std = 2});
    return specs;
  }

 private:
  explicit Model(const BatchSize& size) : size_(size), b_(graph_) {
    graph_.name = "with_source";
    for (const ParameterSpec& p : parameters())
      weights_[p.name] = b_.input(InputKind::parameter, p.name, real_type(p.shape));
    const int64_t n = size.batch * size.seq;
    tokens_ = b_.input(InputKind::batch, "tokens", index_type({n}));
    positions_ = b_.input(InputKind::batch, "positions", index_type({n}));
    source_ = b_.input(InputKind::batch, "source", real_type({size.batch, kSource * kWidth}));
    length_ = b_.input(InputKind::batch, "source_length", index_type({size.batch}));
  }

  ValueId linear(ValueId x, const std::string& name) {
    b_.tag.origin = name;
    return b_.gemm(x, weights_.at(name), {.trans_b = true, .role = GemmRole::forward});
  }
  // The length of each entry's source, for each of its n queries.
  ValueId ends(int64_t n) {
    const ValueId repeated = b_.broadcast(length_, {size_.batch, n}, {0});
    return b_.reshape(repeated, {size_.batch * n});
  }
  // [B, H, T, kv_len]
  ValueId distance_bias(WithBias which) {
    const bool is_of_all = which == WithBias::of_all_places && size_.cache > 0;
    const int64_t places = is_of_all ? size_.cache : size_.seq;
    const Shape box{size_.batch, size_.seq, places}, whole{size_.batch, kHeads, size_.seq, places};
    const ValueId query =
        b_.broadcast(b_.reshape(positions_, {size_.batch, size_.seq}), box, {0, 1});
    Shape longer = box;
    longer[2] += 3;
    const ValueId keys = b_.emit1(OpCode::iota, IotaAttrs{.shape = longer, .axis = 2}, {});
    const ValueId key =
        b_.emit1(OpCode::slice,
                 SliceAttrs{.start = {0, 0, 3}, .limit = longer, .stride = {1, 1, 1}}, {keys});
    const ValueId is_near =
        b_.broadcast(b_.emit1(OpCode::less, NoAttrs{}, {query, key}), whole, {0, 2, 3});
    const auto of_heads = [&](const char* name) {
      return b_.broadcast(weights_.at(name), whole, {1});
    };
    const ValueId bias = b_.select(is_near, of_heads("near"), of_heads("far"));
    if (places == size_.seq) return bias;
    Shape limit = whole;
    limit[3] = size_.seq;
    return b_.emit1(OpCode::slice,
                    SliceAttrs{.start = {0, 0, 0, 0}, .limit = limit, .stride = {1, 1, 1, 1}},
                    {bias});
  }
  ValueId attended(const std::string& layer, ValueId x, ValueId read, AttentionAttrs attrs,
                   ValueId bias = kNoValue) {
    attrs.batch = size_.batch;
    attrs.q_len = b_.shape(x)[0] / size_.batch;
    attrs.kv_len = b_.shape(read)[0] / size_.batch;
    attrs.heads = attrs.kv_heads = kHeads;
    attrs.head_dim = kWidth / kHeads;
    attrs.scale = 1;
    ValueId q = linear(x, layer + ".q"), k = linear(read, layer + ".k");
    const ValueId v = linear(read, layer + ".v");
    const bool is_causal = attrs.mask == AttentionMask::causal;
    if (is_causal) {
      const RopeAttrs rope{.heads = kHeads, .head_dim = kWidth / kHeads};
      q = b_.emit1(OpCode::rope, rope, {q, positions_});
      k = b_.emit1(OpCode::rope, rope, {k, positions_});
    }
    const ValueId key_ends = is_causal ? kNoValue : ends(attrs.q_len);
    const ValueId o = b_.emit(OpCode::attention, attrs,
                              {q, k, v, kNoValue, kNoValue, key_ends, bias})[Attention::o];
    return b_.add(x, o);
  }
  void build(WithBias bias) {
    using enum AttentionKeys;
    b_.tag = {.layer = 0, .layer_name = "encoder.layers.0"};
    const ValueId rows = b_.reshape(source_, {size_.batch * kSource, kWidth});
    const ValueId s = attended("encoder", rows, rows, {.mask = AttentionMask::full, .keys = own});
    b_.tag = {.layer = 1, .layer_name = "decoder.layers.0"};
    ValueId x = b_.emit1(OpCode::embedding, NoAttrs{}, {weights_.at("words"), tokens_});
    x = attended("text", x, x, {.mask = AttentionMask::causal, .keys = appended},
                 bias == WithBias::no ? kNoValue : distance_bias(bias));
    x = attended("cross", x, s, {.mask = AttentionMask::full, .keys = fixed});
    b_.tag = {};
    b_.output("logits", linear(x, "head"));
  }

  Graph graph_;
  BatchSize size_;
  Builder b_;
  std::map<std::string, ValueId> weights_;
  ValueId tokens_, positions_, source_, length_;
};

struct Case {
  std::string recipe;
  WithBias bias = WithBias::no;
};

class Functions {
 public:
  Functions(const Case& c, cpu::Backend& backend, const std::vector<FunctionKey>& keys)
      : functions_(options(c), backend, keys, Model::parameters()) {}

  // Tokens [first, first + n) of both texts, about sources of their own.
  std::vector<std::byte> run(const FunctionKey& key, int64_t first, int64_t n) {
    std::vector<int32_t> tokens, positions, lengths;
    std::vector<float> source;
    for (int64_t text = 0; text < kTexts; ++text) {
      for (int64_t t = first; t < first + n; ++t) {
        tokens.push_back(static_cast<int32_t>((text * 7 + t * t * 5 + 3) % kVocab));
        positions.push_back(static_cast<int32_t>(t));
      }
      lengths.push_back(static_cast<int32_t>(kSource - text));
      for (int64_t i = 0; i < kSource * kWidth; ++i)
        source.push_back(std::sin(static_cast<float>(i * (text + 2))));
    }
    BoundPlan& plan = functions_.at(key);
    const auto write = [&](const char* name, const auto& values) {
      if (plan.has_input(name))
        plan.write_input(name, values.data(), std::ssize(values) * int64_t{4});
    };
    write("tokens", tokens), write("positions", positions), write("source_length", lengths);
    if (plan.has_input("source")) {
      const std::vector<std::byte> bytes = encoded(plan, source);
      plan.write_input("source", bytes.data(), std::ssize(bytes));
    }
    plan.run();
    const GraphOutput* logits = plan.plan().graph.find_output("logits");
    if (logits == nullptr) return {};
    std::vector<std::byte> bytes(
        static_cast<size_t>(plan.plan().graph.type(logits->value).n_bytes()));
    plan.read_output("logits", bytes.data(), std::ssize(bytes));
    return bytes;
  }
  bool reads(const FunctionKey& key, std::string_view input) const {
    return functions_.at(key).has_input(input);
  }

 private:
  static std::vector<std::byte> encoded(const BoundPlan& plan, const std::vector<float>& values) {
    const Graph& graph = plan.plan().graph;
    const TensorType& type = graph.type(graph.find_input("source")->value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
    write_numbers(values, type.dtype, bytes);
    return bytes;
  }
  static ProgramOptions options(const Case& c) {
    ProgramOptions result;
    result.forward = [bias = c.bias](const BatchSize& size, ForwardKind) {
      return Model::forward(size, bias);
    };
    result.recipe = c.recipe;
    result.train = {.batch = kTexts, .seq = kTokens};
    result.inference_only = true;
    return result;
  }

  test::BoundFunctions functions_;
};

FunctionKey cached(std::string_view name, int64_t seq) {
  return {name, {.batch = kTexts, .seq = seq, .cache = 20}};
}

class Source : public testing::TestWithParam<Case> {
 protected:
  static void expect_rows(const std::vector<std::byte>& got, const std::vector<std::byte>& whole,
                          int64_t first, int64_t n) {
    const size_t row = whole.size() / static_cast<size_t>(kTexts * kTokens);
    ASSERT_EQ(got.size(), row * static_cast<size_t>(kTexts * n));
    for (int64_t text = 0; text < kTexts; ++text) {
      EXPECT_EQ(std::memcmp(&got[static_cast<size_t>(text * n) * row],
                            &whole[static_cast<size_t>(text * kTokens + first) * row],
                            static_cast<size_t>(n) * row),
                0)
          << text << " " << first;
    }
  }
};

TEST_P(Source, is_encoded_once_and_texts_about_it_have_the_bits_of_the_whole) {
  cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa(), cpu::RowSums::same);
  const FunctionKey whole{function::logits, {.batch = kTexts, .seq = kTokens}};
  const FunctionKey encode = cached(function::encode, 1), fill = cached(function::fill, 4),
                    decode = cached(function::decode, 1), prefill = cached(function::prefill, 5);
  Functions functions(GetParam(), backend, {whole, encode, fill, decode, prefill});
  const std::vector<std::byte> expected = functions.run(whole, 0, kTokens);
  EXPECT_TRUE(functions.reads(encode, "source"));
  EXPECT_FALSE(functions.reads(encode, "tokens"));
  EXPECT_FALSE(functions.reads(fill, "source"));
  EXPECT_FALSE(functions.reads(decode, "source"));
  EXPECT_TRUE(functions.run(encode, 0, 1).empty());
  functions.run(fill, 0, 4);
  for (int64_t t = 4; t < kTokens; ++t) expect_rows(functions.run(decode, t, 1), expected, t, 1);
  // The same of one call, which encodes too.
  expect_rows(functions.run(prefill, 0, 5), expected, 0, 5);
  expect_rows(functions.run(decode, 5, 1), expected, 5, 1);
}

INSTANTIATE_TEST_SUITE_P(recipes, Source,
                         testing::Values(Case{"fp32"}, Case{"bf16"},
                                         Case{"fp32", WithBias::of_all_places},
                                         Case{"bf16", WithBias::of_all_places}));

TEST(SourceBias, of_a_calls_keys_alone_is_refused) {
  cpu::Backend backend = cpu::make_backend(1, cpu::detect_isa());
  EXPECT_EQ(
      test::error_of([&] {
        Functions({"fp32", WithBias::of_the_call}, backend, {cached(function::decode, 1)});
      }),
      "[with_source] expected a bias [2,2,1,20] of all places of the cache, of which a call's "
      "keys have a slice, got [2,2,1,1]");
}

}  // namespace
}  // namespace octet::with_source
