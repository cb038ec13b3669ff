// Pairs of answers as rows of tokens: row 2i the chosen answer behind its prompt, row 2i + 1 the
// rejected one, each token's label the one behind it where the assistant's answer says it, else
// ignored. Where a loss reads "reference_nll", the sum over a row's labels under a reference model,
// it is NaN until it is set.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/chat_dataset.h"
#include "data/row_options.h"
#include "data/row_source.h"

namespace octet {

class PreferenceRows : public RowSource {
 public:
  explicit PreferenceRows(bool has_reference);

  // Behind those before it; labels as tokens, kIgnoredLabel where there is none.
  void add_row(std::span<const int32_t> tokens, std::span<const int32_t> labels);
  void finish();

  // Sets the reference of all rows in order; before anything that reads them is written.
  void set_reference(std::vector<float> nll);
  const std::vector<float>& reference() const { return reference_; }
  bool has_reference() const { return has_reference_; }
  int64_t n_rows() const { return static_cast<int64_t>(ends_.size()); }

  int64_t n_samples() const override { return n_rows() / 2; }
  int64_t rows_per_sample() const override { return 2; }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return true; }
  int64_t longest() const override { return longest_; }
  uint64_t identity() const override { return identity_; }
  int64_t sample_bytes() const override {
    return std::ssize(tokens_) * 2 * static_cast<int64_t>(sizeof(int32_t)) / n_samples();
  }
  void write(int64_t sample, const RowCell& where, Batch& to) const override;

 private:
  void write_row(int64_t row, int64_t place, Batch& to) const;

  bool has_reference_;
  std::vector<InputSpec> inputs_;
  std::vector<int32_t> tokens_, labels_;
  std::vector<int64_t> ends_;
  std::vector<float> reference_;
  int64_t longest_ = 0;
  uint64_t identity_ = 0;
};

struct PreferenceOptions {
  ChatOptions chat = {};
  int64_t seq = 0;                   // tokens a row at most
  TooLong too_long = TooLong::drop;  // split: as drop, no answer is divided
  bool has_reference = false;
};

struct PreferenceData {
  std::shared_ptr<PreferenceRows> rows;
  ChatReport report;
};

// Throws as read_chat_data() does.
PreferenceData read_preferences(const Files& files, const ChatEncoder& encoder,
                                const PreferenceOptions& options);

}  // namespace octet
