// Samples of named arrays: what a run reads.
//
// A sample is what is never divided: a row, rows that belong together (a pair), or a part of a row.
// A source writes samples into the rows of a batch; which sample comes when is a plan's
// (row_plan.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/rows.h"
#include "data/token_stream.h"

namespace octet {

enum class RowUse : uint8_t { training, evaluation };

// The place of a sample, and what chance decides by on the way there: in an evaluation nothing.
struct RowCell {
  int64_t row = 0;     // of the batch, the sample's first
  int64_t column = 0;  // of the row, where others are before it
  RowUse use = RowUse::evaluation;
  uint64_t seed = 0;  // of the run
  int64_t drawn = 0;  // its first row, counted from the run's start
};

// Immutable; may be read from several threads.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t n_samples() const = 0;
  virtual int64_t rows_per_sample() const { return 1; }
  // The arrays that it writes, as they are declared.
  virtual const std::vector<InputSpec>& inputs() const = 0;
  // True if rows have lengths: tokens without the padding behind them.
  virtual bool tells_lengths() const { return false; }
  // Tokens of the longest row, where rows are padded to any length that holds them; 0: they have a
  // length of their own, or share rows.
  virtual int64_t longest() const { return 0; }
  // Tokens of a row that a sample takes; 0: its rows are its own.
  virtual int64_t places(int64_t) const { return 0; }
  // Rows of two texts: the tokens of a sample's second one, what its array of sources is padded to
  // (0: there is none), and the arrays with sources of so many tokens.
  virtual int64_t source_places(int64_t) const { return 0; }
  virtual int64_t source_seq() const { return 0; }
  virtual std::vector<InputSpec> inputs_of(int64_t /*source*/) const { return inputs(); }
  // Samples of one weight each; empty: all of weight 1.
  virtual std::vector<StreamPart> parts() const { return {}; }
  virtual uint64_t identity() const = 0;  // changes with the content
  // Other values that must stay as they are for a run that goes on.
  virtual LoaderState state() const { return {{"samples", std::to_string(n_samples())}}; }
  // Samples that share rows: what they are, and in what `rows`.
  virtual std::string description(const std::string& /*rows*/) const { return {}; }
  // Elements that are not kIgnoredLabel, nor NaN, of an array of a sample that is written there;
  // nothing where samples share rows, or that must be written to know.
  virtual std::optional<int64_t> n_counted(int64_t, const RowCell&, const InputSpec&) const {
    return std::nullopt;
  }
  // True if samples are decoded when they are written: work for several threads.
  virtual bool decodes() const { return false; }
  // Bytes of a sample in its files, on the average; 0: not known.
  virtual int64_t sample_bytes() const { return 0; }
  // Fills the sample's part of each array of inputs(), which the batch has. Throws Error{bad_data}
  // or Error{io} where it cannot be read.
  virtual void write(int64_t sample, const RowCell& where, Batch& to) const = 0;
};

// At most the first so many; 0: all.
std::shared_ptr<const RowSource> first_rows(std::shared_ptr<const RowSource> source,
                                            int64_t max_samples);

// Files of named arrays by how their names end, and whether some of these are such.
inline constexpr std::string_view kArrayFiles = ".safetensors";
bool are_arrays(const std::vector<std::string>& paths);

// Samples [begin, end) of another source.
std::shared_ptr<const RowSource> slice_rows(std::shared_ptr<const RowSource> source, int64_t begin,
                                            int64_t end);

// The last samples, `fraction` of all, are held out: at least one, but where it is 0, and not all.
int64_t first_held_out(int64_t n_samples, double fraction);

}  // namespace octet
