// The blocks of convolutional networks. A picture lies as [B * H * W, C], the channels of a pixel
// together; a convolution is a GEMM of its windows, a linear to recipes, overrides and PTQ.
#pragma once

#include "nn/blocks.h"

namespace octet {

struct Picture {
  ValueId x = kNoValue;  // [B * height * width, C]
  int64_t height = 0, width = 0;
};

// How many pixels of border a picture has: `padding` on each side, or as many as TensorFlow's SAME
// takes, by the picture's extents (the larger half below and on the right).
enum class Border : uint8_t { given, same };

// A square window. groups: each of the output channels reads its group's input channels alone; the
// weight of a group is a part of one parameter, which recipes quantize and PTQ leaves as it is. As
// many groups as channels on both sides: depthwise, an op of its own (no GEMM) whose operands
// recipes quantize and dequantize; its sums are in single precision.
struct ConvolutionOptions {
  int64_t kernel = 3, stride = 1, padding = 0, dilation = 1, groups = 1;
  WithBias bias = WithBias::no;
  Border border = Border::given;
};

// Picture of pixels [B, C, H, W].
Picture picture_of(Blocks& b, ValueId pixels);

// y[o, p, q] = sum over c, i, j of w[o, c, i, j] x[c, stride p + dilation i - padding, ...], zero
// outside of the picture. Weight [n_out, C / groups, kernel, kernel] in files. Throws
// Error{invalid_argument} "[convolution] PATH: ..." for options below 1 (padding: 0), groups that
// do not divide both numbers of channels, and a window larger than the padded picture.
Picture convolution(Blocks& b, const Picture& picture, std::string_view path, int64_t n_out,
                    const ConvolutionOptions& options);

// The largest of each window; padding counts nowhere.
Picture max_pool(Blocks& b, const Picture& picture, std::string_view path,
                 const ConvolutionOptions& options);

// The mean of each window, which must lie within the picture.
Picture mean_pool(Blocks& b, const Picture& picture, std::string_view path, int64_t kernel);

// [B, C * side * side], channels first: the means of side x side parts, which overlap where they
// must (part i of n of an extent s: [floor(i s / n), ceil((i + 1) s / n))). Source: PyTorch's
// AdaptiveAvgPool2d and a flatten.
ValueId flat_means(Blocks& b, const Picture& picture, std::string_view path, int64_t side);

// y = (x - mean[c]) / sqrt(var[c] + eps) * w[c] + b[c]. With BatchStatistics::own mean and variance
// are those of all pixels of the batch, in single precision, and the running ones become 0.9 old +
// 0.1 new (new variances are divided by n - 1); else they are the running ones. Source: Ioffe &
// Szegedy 2015; PyTorch's BatchNorm2d. Throws Error{invalid_argument} for own statistics of one
// pixel.
Picture batch_norm(Blocks& b, const Picture& picture, std::string_view path);

// Every stride-th pixel of each axis, and zeros as channels on both sides, half of them each.
Picture subsampled(Blocks& b, const Picture& picture, int64_t stride, int64_t n_out);

Picture relu(Blocks& b, const Picture& picture, std::string_view origin);
Picture relu6(Blocks& b, const Picture& picture, std::string_view origin);  // at most 6
// The channels of one, then of the other.
Picture joined(Blocks& b, const Picture& one, const Picture& other, std::string_view origin);
Picture add(Blocks& b, const Picture& one, const Picture& other);

// The mean of each picture's pixels: [B, C].
ValueId mean_of_pixels(Blocks& b, const Picture& picture);

}  // namespace octet
