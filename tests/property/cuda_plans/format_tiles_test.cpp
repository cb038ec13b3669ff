// How the CUDA module's quantizers of arrays walk a matrix, run on the CPU with the same scalar
// functions: every element lies in one segment, and codes are those of formats/quantize.h.
#include "backends/cuda/kernels/quantize/format_tiles.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "formats/quantize.h"

namespace octet::cuda {
namespace {

MatrixShape tile_of(const MatrixShape& shape, const Granularity& granularity) {
  switch (granularity.kind) {
    case Granularity::Kind::tensor:
      return shape;
    case Granularity::Kind::row:
      return {1, shape.cols};
    case Granularity::Kind::group:
      return {1, granularity.size};
    case Granularity::Kind::block:
      return {granularity.size, granularity.size};
    default:
      return {};
  }
}

std::vector<float> values(int64_t n) {
  std::mt19937 random(static_cast<uint32_t>(n));
  std::normal_distribution<float> normal(0, 10);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random);
  return x;
}

TEST(FormatTiles, every_element_lies_in_the_segment_of_its_tile) {
  const MatrixShape shapes[] = {{1, 1}, {3, 5000}, {37, 131}, {130, 1}, {0, 7}, {7, 0}};
  for (const MatrixShape& shape : shapes) {
    for (const char* name : {"row", "1x1", "1x16", "1x5000", "16x16", "2048x2048"}) {
      const Granularity granularity = granularity_from_name(name);
      const MatrixShape tile = tile_of(shape, granularity), grid = scale_shape(shape, granularity);
      const TileWalk walk =
          tile_walk(shape.rows, shape.cols, tile.rows, std::max<int64_t>(tile.cols, 1));
      std::vector<int> seen(static_cast<size_t>(shape.n_elems()));
      for (int64_t i = 0; i < walk.n_segments(); ++i) {
        const TileSegment segment = walk.segment(i);
        ASSERT_LE(segment.n, TileWalk::kPiece);
        for (int64_t at = segment.first; at < segment.first + segment.n; ++at) {
          ++seen[static_cast<size_t>(at)];
          const int64_t row = at / shape.cols, col = at % shape.cols;
          EXPECT_EQ(segment.tile, row / tile.rows * grid.cols + col / tile.cols);
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << name << " of " << shape.rows;
    }
  }
}

TEST(FormatTiles, codes_of_segments_are_those_of_the_quantizer) {
  const MatrixShape shape{37, 2500};
  const std::vector<float> x = values(shape.n_elems());
  for (const char* name : {"tensor", "row", "1x128", "128x128", "7x7"}) {
    const Quantizer quantizer = linear_quantizer(Dtype::hif8, granularity_from_name(name));
    std::vector<float> scales(scale_shape(shape, quantizer.granularity).n_elems());
    std::vector<uint8_t> codes(x.size()), walked(x.size());
    quantize(quantizer, shape, x, codes, scales);
    const MatrixShape tile = tile_of(shape, quantizer.granularity);
    const TileWalk walk = tile_walk(shape.rows, shape.cols, tile.rows, tile.cols);
    std::vector<float> largest(scales.size());
    for (int64_t i = 0; i < walk.n_segments(); ++i) {
      const auto [first, n, at] = walk.segment(i);
      for (int64_t k = first; k < first + n; ++k)
        largest[at] = join({largest[at], false}, amax_of(x[k])).value;
    }
    for (int64_t i = 0; i < walk.n_segments(); ++i) {
      const auto [first, n, at] = walk.segment(i);
      const float inv_scale = 1.0f / scale_from_amax(quantizer, largest[at]);
      for (int64_t k = first; k < first + n; ++k)
        walked[k] = static_cast<uint8_t>(encode<Dtype::hif8>(x[k] * inv_scale));
    }
    EXPECT_EQ(walked, codes) << name;
  }
}

}  // namespace
}  // namespace octet::cuda
