// A program of one small layer over made-up inputs: a norm, a product, an activation and a loss.
#pragma once

#include "compile/program.h"
#include "unit/plan/named_catalogue.h"

namespace octet::test {

struct SmallModel {
  int layers = 2;
  bool has_recurrence = false;   // the gated delta rule of a layer's product, as one head
  bool norm_read_twice = false;  // a near miss under the recipes of eight bits
};

inline Graph small_forward(const SmallModel& model, const BatchSize& size, ForwardKind kind) {
  constexpr int64_t kWidth = 32, kClasses = 64;
  const int64_t rows = size.batch * size.seq;
  Graph graph;
  Builder b(graph);
  ValueId x = b.input(InputKind::batch, "x", real_type({rows, kWidth}));
  for (int layer = 0; layer < model.layers; ++layer) {
    b.tag = {.layer = layer, .role = Role::forward, .origin = "norm"};
    const ValueId y = b.emit(OpCode::rms_norm, NormAttrs{}, {x})[0];
    b.tag.origin = "proj";
    const ValueId w =
        b.input(InputKind::parameter, "w" + std::to_string(layer), real_type({kWidth, kWidth}));
    ValueId product = b.gemm(y, w, {.trans_b = true, .role = GemmRole::forward});
    if (model.has_recurrence) {
      const ValueId column = b.slice(product, 1, 0, 1);
      const ValueId decay = b.neg(b.unary(OpCode::square, column));
      product = b.emit1(OpCode::gated_delta, GatedDeltaAttrs{.batch = size.batch},
                        {product, product, product, decay, column});
    }
    x = b.add(model.norm_read_twice ? y : x, product);
  }
  b.tag = {.layer = -1, .role = Role::forward, .origin = "head"};
  const ValueId head = b.input(InputKind::parameter, "head", real_type({kClasses, kWidth}));
  const ValueId logits = b.gemm(x, head, {.trans_b = true, .role = GemmRole::forward});
  if (kind == ForwardKind::outputs) {
    b.output("logits", logits);
    return graph;
  }
  const ValueId labels = b.input(InputKind::batch, "labels", index_type({rows}));
  const ValueId inv_n = b.input(InputKind::step_scalar, "inv_n", real_type({}));
  const auto loss = b.emit(OpCode::cross_entropy, CrossEntropyAttrs{}, {logits, labels, inv_n});
  b.output("loss", loss[0]);
  b.output("nll", loss[2]);
  return graph;
}

inline ProgramOptions small_options(std::string recipe, const SmallModel& model = {}) {
  ProgramOptions options;
  options.forward = [model](const BatchSize& size, ForwardKind kind) {
    return small_forward(model, size, kind);
  };
  options.recipe = std::move(recipe);
  options.train = {.batch = 8, .seq = 64};
  return options;
}

}  // namespace octet::test
