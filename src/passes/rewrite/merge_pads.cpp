// Sums that the gradient of a cut leaves behind: every piece is padded with zeros to the whole, and
// the paddings are added.
#include <algorithm>
#include <map>
#include <optional>
#include <variant>
#include <vector>

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
std::optional<Piece> piece_of(const Graph& graph, const Node& pad, const PadAttrs& a) {
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

// Pieces of each value that is a piece or a sum of such sums: asked once, so that a long sum of
// other things (a residual stream) is not searched again from each of its terms.
using Sums = std::map<ValueId, std::vector<Piece>>;
Sums sums_of_pieces(const Graph& graph) {
  Sums sums;
  for (const Node& node : graph.nodes) {
    if (const auto* pad = std::get_if<PadAttrs>(&node.attrs)) {
      if (const auto piece = piece_of(graph, node, *pad)) sums[node.out(Unary::y)] = {*piece};
    } else if (node.op == OpCode::add) {
      const auto a = sums.find(node.in(Binary::a)), b = sums.find(node.in(Binary::b));
      if (a == sums.end() || b == sums.end()) continue;
      std::vector<Piece>& sum = sums[node.out(Binary::y)] = a->second;
      sum.insert(sum.end(), b->second.begin(), b->second.end());
    }
  }
  return sums;
}

// The pieces of a sum in order, where they tile it and are of its dtype. One alone never does.
std::vector<Piece> tiles_of(const Graph& graph, const TensorType& sum, std::vector<Piece> pieces) {
  std::ranges::sort(pieces, {}, &Piece::start);
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    const bool fits = piece.axis == pieces[0].axis && piece.start == end &&
                      graph.type(piece.value).dtype == sum.dtype;
    if (!fits) return {};
    end += piece.size;
  }
  return end == sum.shape[static_cast<size_t>(pieces[0].axis)] ? pieces : std::vector<Piece>{};
}

}  // namespace

Graph merge_pads(const Graph& graph) {
  Rewriter rewriter(graph);
  const Sums sums = sums_of_pieces(graph);
  for (const Node& node : graph.nodes) {
    const auto sum = sums.find(node.out(Binary::y));
    const auto tiles = sum == sums.end() ? std::vector<Piece>{}
                                         : tiles_of(graph, graph.type(sum->first), sum->second);
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
