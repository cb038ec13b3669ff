// What the gradient of a cut leaves behind: every piece is padded with zeros to the whole, and the
// paddings are added.
#include <algorithm>
#include <optional>

#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/simplify.h"

namespace octet {
namespace {

// A value that lies at `start` of the whole along an axis, zeros around it.
struct Piece {
  ValueId value = kNoValue;
  int64_t axis = 0, start = 0, size = 0;
};

// The padded operand, where it is padded by zeros along one axis.
std::optional<Piece> piece_of(const Graph& graph, const Node& pad) {
  const auto& a = std::get<PadAttrs>(pad.attrs);
  if (a.value != 0) return std::nullopt;
  std::optional<Piece> piece;
  for (size_t i = 0; i < a.low.size(); ++i) {
    if (a.interior[i] != 0) return std::nullopt;
    if (a.low[i] == 0 && a.high[i] == 0) continue;
    if (piece) return std::nullopt;
    piece = Piece{.value = pad.in(Unary::x),
                  .axis = static_cast<int64_t>(i),
                  .start = a.low[i],
                  .size = graph.type(pad.in(Unary::x)).shape[i]};
  }
  return piece;
}

// For each value, whether it is a piece or a sum of such sums: asked once, so that a long sum of
// other things (a residual stream) is not searched again from each of its terms.
std::vector<bool> sums_of_pieces(const Graph& graph) {
  std::vector<bool> result(graph.values.size(), false);
  const auto is_sum = [&](ValueId id) { return result[static_cast<size_t>(id)]; };
  for (const Node& node : graph.nodes) {
    const bool sum = node.op == OpCode::add
                         ? is_sum(node.in(Binary::a)) && is_sum(node.in(Binary::b))
                         : node.op == OpCode::pad && piece_of(graph, node).has_value();
    if (sum) result[static_cast<size_t>(node.out(Binary::y))] = true;
  }
  return result;
}

// The terms of a sum of pieces.
void collect(const Graph& graph, ValueId id, std::vector<Piece>& pieces) {
  const Node& node = *graph.producer(id);
  if (node.op == OpCode::pad) return pieces.push_back(*piece_of(graph, node));
  collect(graph, node.in(Binary::a), pieces);
  collect(graph, node.in(Binary::b), pieces);
}

// The pieces of this sum in order, where they tile it and are of its dtype.
std::vector<Piece> tiles_of(const Graph& graph, const Node& sum) {
  std::vector<Piece> pieces;
  collect(graph, sum.out(Binary::y), pieces);
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.start < b.start; });
  const TensorType& whole = graph.type(sum.out(Binary::y));
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    const bool fits = piece.axis == pieces[0].axis && piece.start == end &&
                      graph.type(piece.value).dtype == whole.dtype;
    if (!fits) return {};
    end += piece.size;
  }
  return end == whole.shape[static_cast<size_t>(pieces[0].axis)] ? pieces : std::vector<Piece>{};
}

}  // namespace

Graph merge_pads(const Graph& graph) {
  Rewriter rewriter(graph);
  const std::vector<bool> is_sum = sums_of_pieces(graph);
  for (const Node& node : graph.nodes) {
    const bool sum = node.op == OpCode::add && is_sum[static_cast<size_t>(node.results[0])];
    const auto tiles = sum ? tiles_of(graph, node) : std::vector<Piece>{};
    if (tiles.empty()) {
      rewriter.copy(node);
      continue;
    }
    ValueIds operands;
    for (const Piece& piece : tiles) operands.push_back(rewriter.map(piece.value));
    rewriter.builder().tag = node.tag;
    rewriter.replace(node, OpCode::concatenate, AxisAttrs{.axis = tiles[0].axis}, operands);
  }
  return rewriter.finish();
}

}  // namespace octet
