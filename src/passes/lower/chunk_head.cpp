#include "passes/lower/chunk_head.h"

#include <algorithm>
#include <optional>
#include <set>

#include "passes/lower/fold.h"
#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/simplify.h"

namespace octet {
namespace {

struct Head {
  const Node* gemm = nullptr;
  const Node* loss = nullptr;
  const Node* loss_grad = nullptr;  // nullptr in a forward graph, as are the others
  const Node* dgrad = nullptr;
  const Node* wgrad = nullptr;

  const Node* last() const { return loss_grad == nullptr ? loss : loss_grad; }
  bool contains(const Node& node) const {
    const Node* parts[] = {gemm, loss, loss_grad, dgrad, wgrad};
    return std::find(std::begin(parts), std::end(parts), &node) != std::end(parts);
  }
};

// Attributes of a GEMM that reads its two factors alone; nullptr of any other node.
const GemmAttrs* plain_gemm(const Node& node) {
  const bool is_plain = node.operands.size() == op_def(node.op).operands.n_required();
  return is_plain ? std::get_if<GemmAttrs>(&node.attrs) : nullptr;
}

// True if only `reader` (or nobody) reads the value.
bool read_by_at_most(const Matcher& m, ValueId id, const Node* reader) {
  const auto readers = m.readers(id);
  return std::all_of(readers.begin(), readers.end(),
                     [&](const Node* node) { return node == reader; });
}

bool find_backward(const Matcher& m, Head& head) {
  const ValueId logits = head.gemm->out(Gemm::y);
  head.loss_grad = m.reader(logits, OpCode::cross_entropy_grad);
  const auto is_other = [&](const Node* r) { return r != head.loss && r != head.loss_grad; };
  if (std::ranges::any_of(m.readers(logits), is_other)) return false;
  if (head.loss_grad == nullptr) return true;
  // A gradient of its own a row comes from behind `nll`, of all rows.
  const ValueId dloss = head.loss_grad->in(CrossEntropyGrad::dloss);
  if (!m.graph().type(dloss).shape.empty()) return false;
  const ValueId dlogits = head.loss_grad->out(CrossEntropyGrad::dlogits);
  if (m.is_graph_output(dlogits)) return false;
  for (const Node* reader : m.readers(dlogits)) {
    const GemmAttrs* gemm = plain_gemm(*reader);
    if (gemm == nullptr || reader->in(Gemm::a) != dlogits) return false;
    const bool is_wgrad = gemm->trans_a;
    if (is_wgrad && reader->in(Gemm::b) != head.gemm->in(Gemm::a)) return false;
    const Node*& place = is_wgrad ? head.wgrad : head.dgrad;
    if (place != nullptr) return false;
    place = reader;
  }
  return true;
}

std::optional<Head> find_head(const Matcher& m) {
  for (const Node& node : m.graph().nodes) {
    if (node.op != OpCode::cross_entropy) continue;
    Head head{.gemm = m.graph().producer(node.in(CrossEntropy::logits)), .loss = &node};
    const GemmAttrs* gemm = head.gemm == nullptr ? nullptr : plain_gemm(*head.gemm);
    const bool plain = gemm != nullptr && head.gemm->tag.layer < 0 && !gemm->trans_a &&
                       !m.is_graph_output(head.gemm->out(Gemm::y)) &&
                       !m.is_graph_output(node.out(CrossEntropy::lse));
    if (!plain || !find_backward(m, head)) continue;
    const bool alone = std::all_of(node.results.begin(), node.results.end(), [&](ValueId id) {
      return read_by_at_most(m, id, head.loss_grad);
    });
    if (alone) return head;
  }
  return std::nullopt;
}

class Chunker {
 public:
  Chunker(const Graph& graph, const Head& head)
      : rewriter_(graph), b_(rewriter_.builder()), head_(head) {}

  Graph run(int64_t rows_per_run) {
    for (const Node& node : rewriter_.from().nodes) {
      if (&node == head_.last()) chunks(rows_per_run);
      if (!head_.contains(node)) rewriter_.copy(node);
    }
    return remove_dead(rewriter_.finish());
  }

 private:
  void chunks(int64_t rows_per_run) {
    const int64_t n_rows = rewriter_.from().type(head_.gemm->out(Gemm::y)).shape[0];
    for (int64_t first = 0; first < n_rows; first += rows_per_run) {
      first_ = first;
      end_ = std::min(first + rows_per_run, n_rows);
      chunk(end_ == n_rows);
    }
    b_.tag = head_.loss->tag;
    rewriter_.set(head_.loss->out(CrossEntropy::loss), loss_);
    rewriter_.set(head_.loss->out(CrossEntropy::nll), b_.concatenate(nll_, 0));
    if (head_.dgrad != nullptr) {
      b_.tag = head_.dgrad->tag;
      rewriter_.set(head_.dgrad->out(Gemm::y), b_.concatenate(dx_, 0));
    }
    if (head_.wgrad != nullptr) rewriter_.set(head_.wgrad->out(Gemm::y), dw_);
  }

  void chunk(bool is_last) {
    const ValueId x = rows(head_.gemm->in(Gemm::a), *head_.gemm);
    const ValueId w = rewriter_.map(head_.gemm->in(Gemm::b));
    const ValueId logits = gemm(*head_.gemm, {x, w}, dtype_of(*head_.gemm));
    const ValueId labels = rows(head_.loss->in(CrossEntropy::labels), *head_.loss);
    const ValueId inv_n = rewriter_.map(head_.loss->in(CrossEntropy::inv_n));
    const auto loss = b_.emit(OpCode::cross_entropy, head_.loss->attrs, {logits, labels, inv_n});
    const ValueId part = loss[CrossEntropy::loss];
    loss_ = loss_ == kNoValue ? part : b_.add(loss_, part);
    nll_.push_back(loss[CrossEntropy::nll]);
    if (head_.loss_grad == nullptr) return;
    b_.tag = head_.loss_grad->tag;
    const ValueId dloss = rewriter_.map(head_.loss_grad->in(CrossEntropyGrad::dloss));
    const Dtype dtype = dtype_of(*head_.loss_grad);
    const ValueId dlogits =
        b_.emit_typed(OpCode::cross_entropy_grad, head_.loss_grad->attrs,
                      {dloss, logits, labels, loss[CrossEntropy::lse],
                       rewriter_.map(head_.loss_grad->in(CrossEntropyGrad::inv_n))},
                      {dtype})[0];
    if (head_.dgrad != nullptr) {
      const ValueId other = rewriter_.map(head_.dgrad->in(Gemm::b));
      dx_.push_back(gemm(*head_.dgrad, {dlogits, other}, dtype_of(*head_.dgrad)));
    }
    if (head_.wgrad == nullptr) return;
    ValueIds operands = {dlogits, x};
    if (dw_ != kNoValue) operands.push_back(dw_);
    dw_ = gemm(*head_.wgrad, operands, is_last ? dtype_of(*head_.wgrad) : Dtype::f32);
  }

  Dtype dtype_of(const Node& node) const {
    return rewriter_.from().type(node.results.front()).dtype;
  }

  ValueId gemm(const Node& like, ValueIds operands, Dtype dtype) {
    b_.tag = like.tag;
    return b_.emit_typed(OpCode::gemm, like.attrs, std::move(operands), {dtype})[0];
  }

  // This run's rows of an old value.
  ValueId rows(ValueId old_id, const Node& reader) {
    b_.tag = reader.tag;
    return b_.slice(rewriter_.map(old_id), 0, first_, end_ - first_);
  }

  Rewriter rewriter_;
  Builder& b_;
  const Head& head_;
  int64_t first_ = 0, end_ = 0;
  ValueId loss_ = kNoValue, dw_ = kNoValue;
  ValueIds nll_, dx_;
};

}  // namespace

Graph chunk_head(const Graph& graph, const ChunkHeadOptions& options) {
  const Matcher matcher(graph);
  const auto head = find_head(matcher);
  if (!head) return graph;
  const TensorType& logits = graph.type(head->gemm->out(Gemm::y));
  const int64_t row_bytes = bytes_of(logits.dtype, logits.shape[1]);
  const int64_t rows = std::max<int64_t>(options.chunk_bytes / row_bytes, 1);
  return rows >= logits.shape[0] ? graph : Chunker(graph, *head).run(rows);
}

}  // namespace octet
