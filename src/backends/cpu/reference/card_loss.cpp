// Cross-entropy, by the threads of a block for each row.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/reference/card.h"
#include "math/exact_functions.h"

namespace octet::reference {
namespace {

constexpr size_t kThreads = 256, kEight = 8;

// sum exp(x - top) of what was seen, as kernels/loss/loss.cu adds it up.
struct Softmax {
  float top = -std::numeric_limits<float>::infinity(), sum = 0;

  bool is_empty() const { return top == -std::numeric_limits<float>::infinity(); }
  float shift() const { return is_empty() ? 0.0f : top; }
  void raise(float to) {
    if (!(to > top)) return;
    if (!is_empty()) sum *= exp_exact(top - to);
    top = to;
  }
  void add(std::span<const float> values) {
    float largest = -std::numeric_limits<float>::infinity();
    for (const float v : values) largest = std::fmax(largest, v);
    raise(largest);
    for (const float v : values) sum += exp_exact(v - shift());
  }
  void join(const Softmax& other) {
    raise(other.top);
    sum += other.is_empty() ? other.sum : other.sum * exp_exact(other.top - top);
  }
};

// A row of logits by the threads of its block. `place`: of its first element in the matrix, which
// begins at a multiple of 16 bytes.
class LossRow {
 public:
  LossRow(std::vector<float> x, size_t place, Dtype dtype) : x_(std::move(x)) {
    const size_t n = x_.size(), whole = size(16 / bytes_of(dtype, 1));
    n_threads_ = std::min(kThreads, (n + kWarp * kEight - 1) / (kWarp * kEight) * kWarp);
    head_ = std::min(n, (whole - place % whole) % whole);
    tail_ = head_ + (n - head_) / kEight * kEight;
  }

  float lse() const {
    std::vector<Softmax> threads;
    for (size_t t = 0; t < n_threads_; ++t) threads.push_back(softmax_of(t));
    Softmax all;
    for (size_t first = 0; first < n_threads_; first += kWarp) {
      for (size_t step = kWarp / 2; step > 0; step /= 2) {
        for (size_t lane = first; lane < first + step; ++lane)
          threads[lane].join(threads[lane + step]);
      }
      first == 0 ? void(all = threads[0]) : all.join(threads[first]);
    }
    return all.shift() + log_exact(all.sum);
  }
  float mean() const {
    std::vector<float> threads(n_threads_);
    for (size_t i = 0; i < x_.size(); ++i) threads[i % n_threads_] += x_[i];
    return in_order(warp_sums<float>(threads)) / static_cast<float>(x_.size());
  }

 private:
  // Eights before what lies at the ends.
  Softmax softmax_of(size_t thread) const {
    constexpr size_t kPacks = 4;  // that are added together
    Softmax s;
    const size_t step = n_threads_ * kEight;
    for (size_t i = head_ + thread * kEight; i < tail_; i += step * kPacks) {
      std::vector<float> values;
      for (size_t from = i; from < std::min(tail_, i + step * kPacks); from += step)
        values.insert(values.end(), &x_[from], &x_[from] + kEight);
      s.add(values);
    }
    if (thread < head_) s.add({&x_[thread], 1});
    if (tail_ + thread < x_.size()) s.add({&x_[tail_ + thread], 1});
    return s;
  }

  std::vector<float> x_;
  size_t n_threads_, head_, tail_;
};

struct Label {
  bool is_valid;
  size_t place;

  Label(double label, size_t classes)
      : is_valid(label >= 0 && label < static_cast<double>(classes)),
        place(is_valid ? static_cast<size_t>(label) : 0) {}
};

}  // namespace

void card_cross_entropy(const RefCall& call) {
  using L = CrossEntropy;
  const RefTensor& logits = call.in[L::logits];
  const size_t classes = dim(logits, 1), rows = dim(logits, 0);
  const auto s = static_cast<float>(std::get<CrossEntropyAttrs>(call.attrs).smoothing);
  std::vector<double> threads(1024);
  for (size_t r = 0; r < rows; ++r) {
    const std::vector<float> x = floats(row(logits, r));
    const LossRow all(x, r * classes, logits.type.dtype);
    const Label label(call.in[L::labels].data[r], classes);
    const float lse = all.lse(), nll = label.is_valid ? lse - x[label.place] : 0.0f;
    call.out[L::lse].data[r] = lse, call.out[L::nll].data[r] = nll;
    float loss = nll;
    if (s != 0) loss = nll + (label.is_valid ? s * (x[label.place] - all.mean()) : 0.0f);
    threads[r % threads.size()] += loss;
  }
  for (size_t step = threads.size() / 2; step > 0; step /= 2) {
    for (size_t i = 0; i < step; ++i) threads[i] += threads[i + step];
  }
  call.out[L::loss].data[0] = threads[0] * call.in[L::inv_n].data[0];
}

void card_cross_entropy_grad(const RefCall& call) {
  const RefTensor& logits = call.in[1];
  const size_t classes = dim(logits, 1), rows = dim(logits, 0);
  const auto s = static_cast<float>(std::get<CrossEntropyAttrs>(call.attrs).smoothing);
  const float share = s / static_cast<float>(classes), most = 1.0f - s;
  const auto of = [&](size_t slot, size_t i) { return static_cast<float>(call.in[slot].data[i]); };
  for (size_t r = 0; r < rows; ++r) {
    const Label label(call.in[2].data[r], classes);
    const float factor = of(0, call.in[0].data.size() == 1 ? 0 : r) * of(4, 0), lse = of(3, r);
    for (size_t c = 0; c < classes; ++c) {
      double& to = call.out[0].data[r * classes + c];
      to = 0;
      if (!label.is_valid) continue;
      const float p = exp_exact(of(1, r * classes + c) - lse) - share;
      to = factor * (c == label.place ? p - most : p);
    }
  }
}

}  // namespace octet::reference
