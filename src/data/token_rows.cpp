#include "data/token_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace octet {
namespace {

class TokenRowSource : public RowSource {
 public:
  TokenRowSource(TokenRows rows, TokenRowsOptions options)
      : rows_(std::move(rows)), options_(std::move(options)), inputs_{tokens_input()} {
    CHECK(rows_.n_rows() % options_.rows_per_sample == 0);
    CHECK(rows_.types.empty() == !options_.token_types.has_value() || rows_.tokens.empty());
    if (rows_.n_rows() == 0)
      throw Error(ErrorCode::bad_data, "[data] expected a sample at least, got none");
    if (options_.token_types) inputs_.push_back(*options_.token_types);
    int64_t begin = 0;
    for (const int64_t end : rows_.ends)
      longest_ = std::max(longest_, end - std::exchange(begin, end));
    Xxh64 hash;
    hash.update_sized(rows_.tokens);
    hash.update_sized(rows_.types);
    hash.update_sized(rows_.ends);
    for (const HostTensor& column : rows_.of_rows) {
      CHECK(column.spec.per == Per::row);
      inputs_.push_back(column.spec);
      std::visit(
          [&](const auto& values) {
            CHECK(std::ssize(values) == rows_.n_rows() * column.spec.n_inner());
            hash.update_sized(values);
          },
          column.values);
    }
    identity_ = hash.digest();
  }

  int64_t n_samples() const override { return rows_.n_rows() / options_.rows_per_sample; }
  int64_t rows_per_sample() const override { return options_.rows_per_sample; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return true; }
  int64_t longest() const override { return longest_; }
  uint64_t identity() const override { return identity_; }
  int64_t sample_bytes() const override {
    return std::max<int64_t>(
        std::ssize(rows_.tokens) * static_cast<int64_t>(sizeof(int32_t)) / n_samples(), 1);
  }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    for (int64_t i = 0; i < options_.rows_per_sample; ++i)
      write_row(first_row(sample) + i, where.row + i, to);
  }

 private:
  int64_t first_row(int64_t sample) const { return sample * options_.rows_per_sample; }

  void write_row(int64_t row, int64_t place, Batch& to) const {
    const int64_t begin = row == 0 ? 0 : rows_.ends[static_cast<size_t>(row - 1)];
    const int64_t n = rows_.ends[static_cast<size_t>(row)] - begin;
    CHECK(n <= to.seq);
    const auto own = [&](const std::vector<int32_t>& all) {
      return std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    };
    put_row(own(rows_.tokens), options_.padding, place, to.seq, to.ints("tokens"));
    if (options_.token_types)
      put_row(own(rows_.types), 0, place, to.seq, to.ints(options_.token_types->name));
    for (const HostTensor& column : rows_.of_rows) {
      const int64_t n_inner = column.spec.n_inner();
      const auto copy = [&](const auto& values, auto& out) {
        std::copy_n(values.begin() + row * n_inner, n_inner, out.begin() + place * n_inner);
      };
      if (const auto* labels = std::get_if<std::vector<int32_t>>(&column.values)) {
        copy(*labels, to.ints(column.spec.name));
      } else {
        copy(std::get<std::vector<float>>(column.values), to.reals(column.spec.name));
      }
    }
    to.lengths[static_cast<size_t>(place)] = n;
  }

  TokenRows rows_;
  TokenRowsOptions options_;
  std::vector<InputSpec> inputs_;
  int64_t longest_ = 0;
  uint64_t identity_ = 0;
};

}  // namespace

void put_row(std::span<const int32_t> tokens, int32_t padding, int64_t row, int64_t seq,
             std::vector<int32_t>& to) {
  const auto out = to.begin() + row * seq;
  std::ranges::copy(tokens, out);
  std::fill(out + std::ssize(tokens), out + seq, padding);
}

void TokenRows::add_row(std::span<const int32_t> row_tokens, std::span<const int32_t> row_types) {
  tokens.insert(tokens.end(), row_tokens.begin(), row_tokens.end());
  types.insert(types.end(), row_types.begin(), row_types.end());
  ends.push_back(std::ssize(tokens));
}

std::shared_ptr<const RowSource> token_rows(TokenRows rows, const TokenRowsOptions& options) {
  return std::make_shared<TokenRowSource>(std::move(rows), options);
}

}  // namespace octet
