#include "backends/cuda/module/adamw_many.h"

#include <algorithm>

namespace octet::cuda {
namespace {

// Fewer elements than this are not worth a launch of their own.
constexpr int64_t kWorthLaunch = int64_t{1} << 18;
// Nor than this where the kernel for many tensors is as fast but for the keys of the random words,
// which a launch of its own has in constant memory: 0.83 of its rate.
constexpr int64_t kWorthKeys = int64_t{1} << 23;

bool is_f32_or_bf16_number(uint8_t dtype) {
  const auto d = static_cast<Dtype>(dtype);
  return d == Dtype::f32 || d == Dtype::bf16 || d == Dtype::fp16;
}
int width_of(uint8_t dtype) {
  return static_cast<int>(bytes_of(static_cast<Dtype>(dtype), 1));
}
bool is_codes(uint8_t dtype) {
  const auto d = static_cast<Dtype>(dtype);
  return d != Dtype::f32 && d != Dtype::bf16;
}

int64_t pieces(int64_t n, int64_t each) {
  return (n + each - 1) / each;
}

void check_place(const void* at, int bytes, const char* what) {
  if (at != nullptr && reinterpret_cast<uintptr_t>(at) % static_cast<uintptr_t>(bytes) == 0) return;
  throw ModuleError("[optimizer] " + std::string(what) + ": expected memory aligned to " +
                    std::to_string(bytes) + " bytes, got " +
                    (at == nullptr ? "none" : "some that is not"));
}

}  // namespace

AdamwMany::AdamwMany(const OctetCudaOptimizerOptions& options) : options_(options) {
  int n_devices = 0;
  check(cudaGetDeviceCount(&n_devices), "counting devices");
  if (options.device < 0 || options.device >= n_devices)
    throw ModuleError("[cuda] expected a device below " + std::to_string(n_devices) + ", got " +
                      std::to_string(options.device));
  if (options.group < 1)
    throw ModuleError("[optimizer] expected groups of 1 or more, got " +
                      std::to_string(options.group));
  check(cudaDeviceGetAttribute(&n_sm_, cudaDevAttrMultiProcessorCount, options.device),
        "counting multiprocessors");
  if (!is_codes(options_.m_dtype) && !is_codes(options_.v_dtype)) options_.group = 128;
}

void AdamwMany::check_weight(const OctetCudaWeight& w) const {
  if (!is_f32_or_bf16_number(w.dtype) || !is_f32_or_bf16_number(w.gradient_dtype))
    throw ModuleError("[optimizer] expected weights and gradients of f32, bf16 or fp16");
  if (w.n < 0 || w.numbers < 0 || w.store > static_cast<uint8_t>(WeightStore::stochastic))
    throw ModuleError("[optimizer] expected sizes, numbers and a store that there are");
  if (w.n == 0) return;
  const auto store = static_cast<WeightStore>(w.store);
  check_place(w.weight, width_of(w.dtype), "weight");
  check_place(w.t, 8, "counter");
  if (store == WeightStore::remainder) check_place(w.master, 2, "master");
  if (store == WeightStore::master) check_place(w.master, 4, "master");
  check_place(w.m, width_of(options_.m_dtype), "first moment");
  check_place(w.v, width_of(options_.v_dtype), "second moment");
  if (is_codes(options_.m_dtype)) check_place(w.m_meta, 4, "first moment's metadata");
  if (is_codes(options_.v_dtype)) check_place(w.v_meta, 4, "second moment's metadata");
}

OctetCudaPlan AdamwMany::plan(std::span<const OctetCudaWeight> weights) {
  for (const OctetCudaWeight& weight : weights) check_weight(weight);
  weights_.clear();
  for (const OctetCudaWeight& weight : weights) {
    if (weight.n > 0) weights_.push_back(weight);
  }
  if (weights_.size() != weights.size())
    throw ModuleError("[optimizer] expected weights with elements, got some without");
  first_chunk_.clear();
  n_chunks_ = n_numbers_ = 0, most_rows_ = 0;
  for (const OctetCudaWeight& weight : weights_) {
    first_chunk_.push_back(n_chunks_);
    n_chunks_ += static_cast<uint32_t>(norm_chunks(weight.n));
    n_numbers_ = std::max(n_numbers_, static_cast<uint32_t>(weight.numbers) + 1);
    most_rows_ += static_cast<size_t>(pieces(weight.n, kMaxRowElements));
  }
  layout_ = layout_of();
  table_ = nullptr, control_ = nullptr;
  kinds_.clear(), gradients_.clear(), numbers_.clear();
  return {.table_bytes = static_cast<int64_t>(layout_.end),
          .n_weights = static_cast<int64_t>(weights_.size())};
}

AdamwMany::Layout AdamwMany::layout_of() const {
  size_t end = 0;
  const auto take = [&](size_t n, size_t bytes) {
    const size_t begin = end;
    end += (n * bytes + 255) / 256 * 256;
    return begin;
  };
  const size_t n = weights_.size();
  Layout l{};
  l.numbers = take(n_numbers_, sizeof(OctetCudaNumbers));
  l.weights = take(n, sizeof(CountedWeight));
  l.n = take(n, sizeof(int64_t));
  l.dtype = take(n, 1);
  l.first_chunk = take(n, sizeof(uint32_t));
  l.sums = take(std::max(n_chunks_, 1u), sizeof(double));
  l.gradients = take(n, sizeof(uint64_t));
  l.scalars = take(n, sizeof(StepScalars));
  l.rows = take(most_rows_, sizeof(UpdateRow));
  l.first_tile = take(most_rows_, sizeof(uint32_t));
  l.end = end;
  return l;
}

void AdamwMany::place(void* table, OctetCudaControl* control, cudaStream_t stream) {
  check_place(table, 16, "table");
  check_place(control, 16, "control");
  table_ = static_cast<std::byte*>(table);
  control_ = control;
  std::vector<CountedWeight> counted;
  std::vector<int64_t> n;
  std::vector<uint8_t> dtype;
  for (const OctetCudaWeight& weight : weights_) {
    counted.push_back({weight.t, weight.numbers, width_of(weight.gradient_dtype)});
    n.push_back(weight.n);
    dtype.push_back(weight.gradient_dtype);
  }
  const auto write = [&](size_t at, const auto& list) {
    launch_write(part<void>(at), list.data(), list.size() * sizeof(list[0]), stream);
  };
  write(layout_.weights, counted);
  write(layout_.n, n);
  write(layout_.dtype, dtype);
  write(layout_.first_chunk, first_chunk_);
  kinds_.clear();
}

void AdamwMany::write_numbers(std::span<const OctetCudaNumbers> numbers, cudaStream_t stream) {
  if (table_ == nullptr || numbers.size() < n_numbers_)
    throw ModuleError("[optimizer] expected a table and numbers of every group");
  numbers_.assign(numbers.begin(), numbers.begin() + n_numbers_);
  launch_write(part<void>(layout_.numbers), numbers_.data(), numbers_.size() * sizeof(numbers_[0]),
               stream);
}

void AdamwMany::write_gradients(std::span<const uint64_t> addresses, cudaStream_t stream) {
  if (table_ == nullptr || addresses.size() != weights_.size())
    throw ModuleError("[optimizer] expected a table and a gradient of every weight");
  bool is_other = kinds_.empty();  // whether fast kernels could read all before and now cannot
  for (size_t i = 0; i < addresses.size(); ++i) {
    check_place(reinterpret_cast<const void*>(addresses[i]), width_of(weights_[i].gradient_dtype),
                "gradient");
    is_other = is_other || addresses[i] % 16 != gradients_[i] % 16;
  }
  gradients_.assign(addresses.begin(), addresses.end());
  launch_write(part<void>(layout_.gradients), gradients_.data(), gradients_.size() * 8, stream);
  if (is_other) make_rows(stream);
}

AdamwCall AdamwMany::call_of(size_t weight) const {
  const OctetCudaWeight& w = weights_[weight];
  const auto* scalars = part<StepScalars>(layout_.scalars) + weight;
  AdamwCall call{};
  call.p.n = call.end = w.n;
  call.p.group = options_.group;
  call.p.stream = w.name;
  call.p.seed = options_.seed;
  call.p.w = static_cast<Dtype>(w.dtype), call.p.g = static_cast<Dtype>(w.gradient_dtype);
  call.p.store = static_cast<WeightStore>(w.store);
  call.p.exact = options_.exact != 0;
  call.p.m = {static_cast<Dtype>(options_.m_dtype), options_.m_expand != 0,
              options_.m_stochastic != 0};
  call.p.v = {static_cast<Dtype>(options_.v_dtype), options_.v_expand != 0,
              options_.v_stochastic != 0};
  call.g = reinterpret_cast<const void*>(gradients_[weight]);
  call.w_from = call.w_to = w.weight;
  call.master_from = call.master_to = w.master;
  call.m = {w.m, w.m, w.m_meta, w.m_meta};
  call.v = {w.v, w.v, w.v_meta, w.v_meta};
  call.lr = &scalars->lr, call.c1 = &scalars->c1, call.c2 = &scalars->c2;
  call.grad_scale = &control_->grad_scale;
  call.found_nonfinite = reinterpret_cast<const uint8_t*>(&control_->skipped);
  call.attempt = &control_->attempt;
  return call;
}

size_t AdamwMany::kind_of(const AdamwCall& call) const {
  if (is_each_alone_) return kAlone;
  const bool aligned = is_aligned(call);
  if (aligned && takes_expanded(call.p)) {
    if (call.p.store == WeightStore::stochastic && call.p.n >= kWorthKeys) return kAlone;
    return 2 * static_cast<size_t>(call.p.store) + (call.p.g == Dtype::f32 ? 1 : 0);
  }
  return call.p.n >= kWorthLaunch || (aligned && takes_groups(call.p)) ? kAlone : kAny;
}

// One weight of a kind needs no list.
std::vector<size_t> AdamwMany::kinds() const {
  std::vector<size_t> kinds;
  std::array<size_t, kKinds> n{};
  for (size_t i = 0; i < weights_.size(); ++i) {
    kinds.push_back(kind_of(call_of(i)));
    ++n[kinds.back()];
  }
  for (size_t& kind : kinds) {
    if (n[kind] == 1) kind = kAlone;
  }
  return kinds;
}

void AdamwMany::add_rows(size_t weight, Rows& rows, bool is_expanded) const {
  const AdamwCall whole = call_of(weight);
  const int64_t each = is_expanded ? kMaxRowElements : whole.p.n;
  for (int64_t first = 0; first < whole.p.n; first += each) {
    const int64_t n = std::min(each, whole.p.n - first);
    UpdateRow row{};
    row.call = is_expanded ? slice_of(whole, first, n) : whole;
    row.call.p.n = n;
    if (is_expanded) row.call.end = n / 128 * 128;
    row.weight = static_cast<int32_t>(weight);
    row.first = first;
    row.index = static_cast<uint32_t>(rows.row.size());
    row.first_tile = rows.n_tiles;
    const int64_t n_tiles = pieces(n, is_expanded ? kExpandedTile : whole.p.group);
    if (n_tiles > int64_t{1} << 30) throw ModuleError("[optimizer] expected smaller tensors");
    row.end_tile = rows.n_tiles += static_cast<uint32_t>(n_tiles);
    rows.first_tile.push_back(row.first_tile);
    rows.row.push_back(row);
  }
}

void AdamwMany::make_rows(cudaStream_t stream) {
  kinds_ = kinds();
  rows_ = {};
  pieces_.assign(kinds_.size(), AdamwPieces{});
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i] != kAlone) {
      add_rows(i, rows_[kinds_[i]], kinds_[i] != kAny);
    } else {
      const AdamwCall call = call_of(i);
      pieces_[i] = adamw_pieces(call.p, is_aligned(call));
    }
  }
  std::vector<UpdateRow> row;
  std::vector<uint32_t> first_tile;
  for (Rows& rows : rows_) {
    rows.before = row.size();
    row.insert(row.end(), rows.row.begin(), rows.row.end());
    first_tile.insert(first_tile.end(), rows.first_tile.begin(), rows.first_tile.end());
  }
  launch_write(part<void>(layout_.rows), row.data(), row.size() * sizeof(UpdateRow), stream);
  launch_write(part<void>(layout_.first_tile), first_tile.data(), first_tile.size() * 4, stream);
}

UpdateRows AdamwMany::list_of(size_t kind) const {
  const Rows& rows = rows_[kind];
  return {.rows = part<UpdateRow>(layout_.rows) + rows.before,
          .first_tile = part<uint32_t>(layout_.first_tile) + rows.before,
          .n_rows = static_cast<uint32_t>(rows.row.size()),
          .n_tiles = rows.n_tiles,
          .found_nonfinite = reinterpret_cast<const uint8_t*>(&control_->skipped)};
}

void AdamwMany::squares(cudaStream_t stream) const {
  if (gradients_.empty() && !weights_.empty())
    throw ModuleError("[optimizer] expected gradients, got none");
  launch_squares({.address = part<const void*>(layout_.gradients),
                  .n = part<int64_t>(layout_.n),
                  .dtype = part<uint8_t>(layout_.dtype),
                  .first_chunk = part<uint32_t>(layout_.first_chunk),
                  .n_gradients = static_cast<uint32_t>(weights_.size()),
                  .sums = part<double>(layout_.sums),
                  .squares = &control_->squares},
                 n_chunks_, stream);
}

void AdamwMany::step(double clip, bool has_squares, cudaStream_t stream) const {
  if (kinds_.size() != weights_.size() || numbers_.size() < n_numbers_)
    throw ModuleError("[optimizer] expected gradients and numbers, got none");
  uint32_t n_rows = 0;
  for (const Rows& rows : rows_) n_rows += static_cast<uint32_t>(rows.row.size());
  launch_begin({.control = control_,
                .numbers = part<OctetCudaNumbers>(layout_.numbers),
                .weights = part<CountedWeight>(layout_.weights),
                .gradients = part<const char*>(layout_.gradients),
                .scalars = part<StepScalars>(layout_.scalars),
                .rows = part<UpdateRow>(layout_.rows),
                .n_weights = static_cast<uint32_t>(weights_.size()),
                .n_rows = n_rows,
                .clip = static_cast<float>(clip),
                .has_squares = has_squares},
               stream);
  bool is_beside_last = false;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (kinds_[i] != kAlone) continue;
    AdamwCall call = call_of(i);
    set_numbers(call.p, numbers_[static_cast<size_t>(weights_[i].numbers)]);
    call.is_beside_last = is_beside_last;
    launch_pieces(pieces_[i], call, n_sm_, stream);
    is_beside_last = true;
  }
  for (size_t kind = 0; kind < kAny; ++kind) {
    if (rows_[kind].row.empty()) continue;
    launch_expanded_many(list_of(kind), static_cast<WeightStore>(kind / 2),
                         kind % 2 == 0 ? Dtype::bf16 : Dtype::f32, n_sm_, stream);
  }
  if (!rows_[kAny].row.empty()) launch_any_many(list_of(kAny), n_sm_, stream);
}

void AdamwMany::one_by_one(bool is_wanted) {
  is_each_alone_ = is_wanted;
  kinds_.clear();
}

}  // namespace octet::cuda
