// Cases of the gated delta rule and its gradient: texts shorter and longer than a chunk, heads that
// share keys, documents, a state before the first token.
#include "op_cases/families.h"

namespace octet::op_cases {
namespace {

struct DeltaCase {
  const char* name = "";
  int64_t batch = 1, seq = 1, key_heads = 1, heads = 1, key_dim = 1, value_dim = 1;

  int64_t rows() const { return batch * seq; }
  // Too large for differences of each element.
  bool is_long() const { return seq > 8; }
  GatedDeltaAttrs attrs() const { return {.batch = batch, .key_heads = key_heads}; }
  std::vector<OperandCase> operands() const {
    return {tensor({rows(), key_heads * key_dim}), tensor({rows(), key_heads * key_dim}),
            tensor({rows(), heads * value_dim}), tensor({rows(), heads}, Fill::negative),
            tensor({rows(), heads}, Fill::positive)};
  }
};

void put_both(Cases& all, const DeltaCase& c, bool has_documents) {
  OpCase forward{.name = std::string("gated_delta_") + c.name,
                 .op = OpCode::gated_delta,
                 .attrs = c.attrs(),
                 .operands = c.operands(),
                 .tolerance = Tolerance::reduction,
                 .typed_only = c.is_long()};
  if (has_documents) forward.operands.push_back(integers({c.rows()}, Fill::doc_starts, c.seq));
  OpCase gradient = forward;
  gradient.name = std::string("gated_delta_grad_") + c.name;
  gradient.op = OpCode::gated_delta_grad;
  gradient.operands.insert(gradient.operands.begin(), forward.operands[GatedDelta::v]);
  all.push_back(std::move(forward));
  all.push_back(std::move(gradient));
}

void put_stateful(Cases& all, const DeltaCase& c) {
  OpCase stateful{.name = std::string("gated_delta_state_") + c.name,
                  .op = OpCode::gated_delta,
                  .attrs = c.attrs(),
                  .operands = c.operands(),
                  .tolerance = Tolerance::reduction,
                  .no_gradient = {0, 1, 2, 3, 4, 6},
                  .typed_only = c.is_long()};
  stateful.operands.push_back(none());
  stateful.operands.push_back(tensor({c.batch, c.heads, c.key_dim, c.value_dim}));
  all.push_back(std::move(stateful));
}

}  // namespace

void add_recurrences(Cases& all) {
  const DeltaCase few{"few", 2, 3, 1, 2, 2, 3}, one{"one_token", 3, 1, 2, 2, 3, 2};
  const DeltaCase ragged{"ragged", 1, 70, 2, 2, 5, 17}, grouped{"grouped", 2, 33, 1, 3, 18, 20};
  const DeltaCase whole{"whole_chunks", 1, 64, 1, 1, 16, 48};
  for (const DeltaCase& c : {few, one, ragged, grouped, whole}) {
    put_both(all, c, false);
    put_stateful(all, c);
  }
  put_both(all, {"documents", 2, 6, 1, 1, 2, 2}, true);
  put_both(all, {"long_documents", 2, 40, 1, 2, 4, 6}, true);
}

}  // namespace octet::op_cases
