#include "backends/cuda/kernels/rows_tile.cuh"

namespace octet::cuda {
namespace {

template <RowLayer L>
void launch_kind(Form form, Out out, const LayerArgs& a, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(tile_blocks(a));
  if (form == Form::groups && out == Out::e4m3) {
    layer_tiles<L, Form::groups, Out::e4m3><<<grid, kTileThreads, 0, stream>>>(a);
  } else if (form == Form::f32 && out == Out::e4m3) {
    layer_tiles<L, Form::f32, Out::e4m3><<<grid, kTileThreads, 0, stream>>>(a);
  } else if (out == Out::e4m3) {
    layer_tiles<L, Form::bf16, Out::e4m3><<<grid, kTileThreads, 0, stream>>>(a);
  } else {
    layer_tiles<L, Form::bf16, Out::hif8><<<grid, kTileThreads, 0, stream>>>(a);
  }
}

}  // namespace

int tile_blocks(const LayerArgs& a) {
  const int64_t n_tiles = ceil_div(a.cols, kTile) * ceil_div(a.padded_rows, kTile);
  return static_cast<int>(row_blocks(n_tiles, kTileBlocks));
}

void launch_tiles(Form form, Out out, const LayerArgs& a, cudaStream_t stream) {
  if (form == Form::any || out == Out::any) {
    const auto grid = static_cast<unsigned>(tile_blocks(a));
    layer_tiles<RowLayer::rms_norm, Form::any, Out::any><<<grid, kTileThreads, 0, stream>>>(a);
  } else if (a.layer == RowLayer::rms_norm) {
    launch_kind<RowLayer::rms_norm>(form, out, a, stream);
  } else if (a.layer == RowLayer::layer_norm) {
    launch_kind<RowLayer::layer_norm>(form, out, a, stream);
  } else if (a.layer == RowLayer::gated_silu) {
    launch_kind<RowLayer::gated_silu>(form, out, a, stream);
  } else {
    launch_kind<RowLayer::gelu_tanh>(form, out, a, stream);
  }
  check_launch("layer_tiles");
}

}  // namespace octet::cuda
