// Shapes that windows of pictures, their products and batch norms give and refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/builder.h"

namespace octet::pictures {
namespace {

const UnfoldAttrs kWindows{.picture = {7, 6},
                           .window = {3, 2},
                           .stride = {2, 1},
                           .dilation = {1, 2},
                           .low = {1, 0},
                           .high = {1, 1}};  // 4 x 5 windows

struct Given {
  OpCode op;
  Attrs attrs;
  std::vector<Shape> operands;
  std::vector<Shape> results;  // or
  const char* error = nullptr;
};

std::vector<Shape> inferred(const Given& given) {
  Graph graph;
  Builder b(graph);
  ValueIds operands;
  for (const Shape& shape : given.operands)
    operands.push_back(
        b.input(InputKind::batch, fmt::to_string(operands.size()), real_type(shape)));
  std::vector<Shape> shapes;
  for (const ValueId id : b.emit(given.op, given.attrs, operands)) shapes.push_back(b.shape(id));
  return shapes;
}

template <typename F>
UnfoldAttrs with(F change) {
  UnfoldAttrs attrs = kWindows;
  change(attrs);
  return attrs;
}

TEST(PictureOps, give_the_shapes_of_their_equations) {
  const Shape c = {16};
  const ConvolutionAttrs forward{kWindows, GemmRole::forward}, dgrad{kWindows, GemmRole::dgrad},
      wgrad{kWindows, GemmRole::wgrad};
  const Given rows[] = {
      {OpCode::unfold, kWindows, {{2, 7, 6, 3}}, {{40, 18}}},
      {OpCode::fold, kWindows, {{40, 18}}, {{2, 7, 6, 3}}},
      {OpCode::unfold, kWindows, {{0, 7, 6, 3}}, {{0, 18}}},
      {OpCode::convolution, forward, {{2, 7, 6, 3}, {5, 18}}, {{40, 5}}},
      {OpCode::convolution, wgrad, {{40, 5}, {2, 7, 6, 3}}, {{5, 18}}},
      {OpCode::convolution, dgrad, {{40, 5}, {5, 18}}, {{2, 7, 6, 3}}},
      {OpCode::depthwise, forward, {{84, 3}, {3, 6}}, {{40, 3}}},
      {OpCode::depthwise, wgrad, {{40, 3}, {84, 3}}, {{3, 6}}},
      {OpCode::depthwise, dgrad, {{40, 3}, {3, 6}}, {{84, 3}}},
      {OpCode::depthwise, forward, {{0, 3}, {3, 6}}, {{0, 3}}},
      {OpCode::batch_norm, BatchNormAttrs{}, {{8, 16}, c, c, c, c}, {{8, 16}, c, c, c, c}},
      {OpCode::batch_norm, BatchNormAttrs{.own = false}, {{1, 16}, c, c, c, c}, {{1, 16}}},
      {OpCode::batch_norm_grad, BatchNormAttrs{}, {{8, 16}, {8, 16}, c, c, c}, {{8, 16}, c, c}},
  };
  for (const Given& row : rows) EXPECT_EQ(inferred(row), row.results) << op_def(row.op).name;
}

TEST(PictureOps, refuse_what_does_not_fit_in_one_sentence) {
  const Shape c = {16};
  const auto far = with([](UnfoldAttrs& a) { a.dilation = {5, 1}; });
  const auto none = with([](UnfoldAttrs& a) { a.stride = {0, 1}; });
  const auto huge = with([](UnfoldAttrs& a) { a.window = {int64_t{1} << 40, 1}; });
  const auto flat = with([](UnfoldAttrs& a) { a.low = {1}; });
  const Given rows[] = {
      {OpCode::unfold, kWindows, {{2, 6, 7, 3}}, {}, "expected pictures of [7,6], got [2,6,7,3]"},
      {OpCode::unfold, kWindows, {{2, 7, 6}}, {}, "[unfold] x must have 4 axes"},
      {OpCode::unfold, far, {{2, 7, 6, 3}}, {}, "axis 0 of 7 with 1 and 1 more must hold 3 places"},
      {OpCode::unfold, none, {{2, 7, 6, 3}}, {}, "extents from 1, low and high from 0, got [0,1]"},
      {OpCode::unfold, huge, {{2, 7, 6, 3}}, {}, "extents from 1"},
      {OpCode::unfold, flat, {{2, 7, 6, 3}}, {}, "of 2 axes, got [1]"},
      {OpCode::fold, kWindows, {{41, 18}}, {}, "rows in pictures of 20 windows"},
      {OpCode::fold, kWindows, {{40, 17}}, {}, "columns of 6 places, got [40,17]"},
      {OpCode::convolution,
       ConvolutionAttrs{kWindows, GemmRole::forward},
       {{2, 7, 6, 3}, {5, 17}},
       {},
       "[convolution] b must be [5,18], got [5,17]"},
      {OpCode::convolution,
       ConvolutionAttrs{kWindows, GemmRole::wgrad},
       {{39, 5}, {2, 7, 6, 3}},
       {},
       "a must be [40,5], got [39,5]"},
      {OpCode::convolution,
       ConvolutionAttrs{kWindows, GemmRole::other},
       {{2, 7, 6, 3}, {5, 18}},
       {},
       "expected a role, got other"},
      {OpCode::depthwise,
       ConvolutionAttrs{kWindows, GemmRole::forward},
       {{83, 3}, {3, 6}},
       {},
       "[depthwise] expected rows in pictures of 42 pixels, got [83,3]"},
      {OpCode::depthwise,
       ConvolutionAttrs{kWindows, GemmRole::dgrad},
       {{40, 3}, {3, 5}},
       {},
       "b must be [3,6], got [3,5]"},
      {OpCode::depthwise,
       ConvolutionAttrs{kWindows, GemmRole::wgrad},
       {{40, 3}, {84, 2}},
       {},
       "b must be [84,3], got [84,2]"},
      {OpCode::depthwise,
       ConvolutionAttrs{kWindows, GemmRole::other},
       {{84, 3}, {3, 6}},
       {},
       "expected a role, got other"},
      {OpCode::batch_norm,
       BatchNormAttrs{},
       {{8, 16}, c, c, c, {15}},
       {},
       "[batch_norm] variance must be [16], got [15]"},
      {OpCode::batch_norm,
       BatchNormAttrs{},
       {{1, 16}, c, c, c, c},
       {},
       "expected own statistics of 2 rows or more, got 1"},
      {OpCode::batch_norm_grad,
       BatchNormAttrs{},
       {{8, 15}, {8, 16}, c, c, c},
       {},
       "dy must be [8,16], got [8,15]"},
  };
  for (const Given& row : rows) {
    try {
      inferred(row);
      ADD_FAILURE() << row.error;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(row.error));
    }
  }
}

TEST(PictureOps, given_statistics_of_a_batch_norm_are_constants) {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input(InputKind::batch, "x", real_type({4, 2}));
  const ValueId c = b.input(InputKind::batch, "c", real_type({2}));
  const ValueId y =
      b.emit(OpCode::batch_norm, BatchNormAttrs{.own = false}, {x, c, c, c, c})[BatchNorm::y];
  const Node node = *graph.producer(y);
  const ValueId dy[] = {b.fill_like(y, 1)};
  const ValueIds d = op_def(node.op).vjp(b, {.node = node, .dresults = dy});
  ASSERT_EQ(d.size(), 5U);
  EXPECT_EQ(b.shape(d[BatchNorm::x]), (Shape{4, 2}));
  EXPECT_EQ(b.shape(d[BatchNorm::weight]), Shape{2});
  EXPECT_EQ(b.shape(d[BatchNorm::bias]), Shape{2});
  EXPECT_EQ(d[BatchNorm::mean], kNoValue);
  EXPECT_EQ(d[BatchNorm::variance], kNoValue);
}

}  // namespace
}  // namespace octet::pictures
