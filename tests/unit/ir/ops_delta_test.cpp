// Shapes that the gated delta rule and its gradient give and refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/builder.h"

namespace octet::ir_ops_delta_test {
namespace {

// 2 texts of 3 tokens; 2 key heads of 5, 4 value heads of 3.
constexpr GatedDeltaAttrs kAttrs{.batch = 2, .key_heads = 2};
const Shape kKeys = {6, 10}, kValues = {6, 12}, kHeads = {6, 4};

struct Given {
  GatedDeltaAttrs attrs;
  Shape q, k, v, log_decay, beta;
  Shape doc_starts = {}, state = {};
};

std::vector<Shape> inferred(const Given& given, OpCode op) {
  Graph graph;
  Builder b(graph);
  ValueIds operands;
  const auto put = [&](const Shape& shape, Dtype dtype) {
    const std::string name = fmt::to_string(operands.size());
    operands.push_back(shape.empty() ? kNoValue : b.input(InputKind::batch, name, {dtype, shape}));
  };
  if (op == OpCode::gated_delta_grad) put(given.v, Dtype::real);
  for (const Shape& shape : {given.q, given.k, given.v, given.log_decay, given.beta})
    put(shape, Dtype::real);
  put(given.doc_starts, Dtype::i32);
  if (op == OpCode::gated_delta) put(given.state, Dtype::real);
  std::vector<Shape> shapes;
  for (const ValueId id : b.emit(op, given.attrs, operands)) shapes.push_back(b.shape(id));
  return shapes;
}

TEST(GatedDeltaOp, gives_what_its_operands_say) {
  const Given plain{kAttrs, kKeys, kKeys, kValues, kHeads, kHeads};
  Given documents = plain, cached = plain;
  documents.doc_starts = {6};
  cached.state = {2, 4, 5, 3};
  const std::vector<Shape> forward = {kValues};
  const std::vector<Shape> both = {kValues, cached.state};
  const std::vector<Shape> gradients = {kKeys, kKeys, kValues, kHeads, kHeads};
  EXPECT_EQ(inferred(plain, OpCode::gated_delta), forward);
  EXPECT_EQ(inferred(documents, OpCode::gated_delta), forward);
  EXPECT_EQ(inferred(cached, OpCode::gated_delta), both);
  EXPECT_EQ(inferred(plain, OpCode::gated_delta_grad), gradients);
  EXPECT_EQ(inferred(documents, OpCode::gated_delta_grad), gradients);
}

TEST(GatedDeltaOp, refuses_what_does_not_fit_in_one_sentence) {
  const Given plain{kAttrs, kKeys, kKeys, kValues, kHeads, kHeads};
  const auto expect_refused = [&](auto change, const std::string& message) {
    Given given = plain;
    change(given);
    for (const OpCode op : {OpCode::gated_delta, OpCode::gated_delta_grad}) {
      if (op == OpCode::gated_delta_grad && !given.state.empty()) continue;
      try {
        inferred(given, op);
        ADD_FAILURE() << message;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_THAT(error.what(), testing::HasSubstr(message));
      }
    }
  };
  expect_refused([](Given& g) { g.attrs.batch = 4; }, "rows of each text, got 4, 2, 6");
  expect_refused([](Given& g) { g.attrs.key_heads = 3; }, "in multiples of 3 key_heads, got 10, 4");
  expect_refused([](Given& g) { g.k = {6, 9}; }, "k must be [6,10], got [6,9]");
  expect_refused([](Given& g) { g.v = {6, 13}; }, "v must be [6, a multiple of 4], got [6,13]");
  expect_refused([](Given& g) { g.beta = {6, 3}; }, "beta must be [6,4], got [6,3]");
  expect_refused([](Given& g) { g.doc_starts = {5}; }, "doc_starts must be [6], got [5]");
  expect_refused(
      [](Given& g) {
        g.state = {2, 4, 3, 5};
      },
      "state must be [2,4,5,3], got [2,4,3,5]");
  expect_refused(
      [](Given& g) {
        g.doc_starts = {6}, g.state = {2, 4, 5, 3};
      },
      "needs operands without doc_starts");
}

}  // namespace
}  // namespace octet::ir_ops_delta_test
