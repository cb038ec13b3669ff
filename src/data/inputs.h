// Named arrays on the host: what a model declares that it reads, and a batch of them.
//
// A model, and a loss, declare their inputs by name (InputSpec); data bring arrays of those names
// (Batch). What follows from others, positions, is made by complete() and needs no source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace octet {

inline constexpr int32_t kIgnoredLabel = -1;  // counts nowhere

// The first extent of an array counts, with B rows of T tokens in a batch:
//   token   B * T, of row b token t at b * T + t
//   row     B
//   sample  B / rows_per_sample: a pair of rows that belong together is one
enum class Per : uint8_t { token, row, sample };
constexpr std::string_view enum_name(Per per) {
  constexpr std::string_view names[] = {"token", "row", "sample"};
  return names[static_cast<int>(per)];
}

enum class HostType : uint8_t {
  i32,
  real,  // f32 here, in the graph's dtype on the device
};

// The fill where there is no data: in padding, and in rows that only fill a batch up.
enum class Fill : uint8_t { zero, ignored };  // 0; kIgnoredLabel, of numbers NaN

struct InputSpec {
  std::string name;
  Per per = Per::token;
  std::vector<int64_t> inner = {};  // the extents behind the first: {3 * 32 * 32}
  HostType type = HostType::i32;
  Fill fill = Fill::zero;
  int64_t bound = 0;        // of i32: values lie in [0, bound), or are kIgnoredLabel; 0: any
  int64_t n_inner() const;  // elements an item
  bool operator==(const InputSpec&) const = default;
};

// How much of everything a batch has.
struct RowDims {
  int64_t rows = 0, seq = 0, rows_per_sample = 1;
  int64_t count(Per per) const;
};

using HostValues = std::variant<std::vector<int32_t>, std::vector<float>>;

// The bytes that a device is sent, in memory that copies of a batch share.
struct StagedBytes {
  std::shared_ptr<const std::byte> data = {};
  size_t size = 0;
};

struct HostTensor {
  InputSpec spec;
  HostValues values;
  StagedBytes staged = {};  // where there are any, in the place of values (infer/batch_inputs.h)
};

// Row-major [batch, seq], and whatever else a row has.
struct Batch {
  int64_t batch = 0, seq = 0, rows_per_sample = 1;
  std::vector<HostTensor> tensors = {};
  // Tokens of each row without the padding behind them; empty where all rows are full.
  std::vector<int64_t> lengths = {};
  // Rows that only fill the batch up (mask_row), ascending.
  std::vector<int64_t> fillers = {};

  RowDims dims() const { return {batch, seq, rows_per_sample}; }
  const HostTensor* find(std::string_view name) const;
  HostTensor* find(std::string_view name);
  // The values of an array of this name; nothing where there is none.
  const std::vector<int32_t>& ints(std::string_view name) const&;
  const std::vector<float>& reals(std::string_view name) const&;
  std::vector<int32_t> ints(std::string_view name) && { return std::as_const(*this).ints(name); }
  // The same, of an array that is there.
  std::vector<int32_t>& ints(std::string_view name) &;
  std::vector<float>& reals(std::string_view name) &;
  // Adds an array of a declared input, filled as its padding is.
  HostTensor& add(const InputSpec& spec);
  // Adds or replaces one; the number of values must be that of the batch's size.
  void set(const InputSpec& spec, HostValues values);
  // Items that a loss counts: of an array its elements that are not kIgnoredLabel or NaN, of "rows"
  // and "samples" those that do not only fill up.
  int64_t n_items(std::string_view counted) const;
  // A flag for each of n results, in the order of these items: true if it counts.
  std::vector<bool> counts(std::string_view counted) const;
  int64_t n_labels() const { return n_items("labels"); }
};

// The inputs of text by name; each is declared once.
InputSpec tokens_input();      // "tokens", a token
InputSpec positions_input();   // "positions", of a token in its row or document
InputSpec doc_starts_input();  // "doc_starts", where in its row the document of a token begins
InputSpec key_ends_input();    // "key_ends", where in its row the keys end that a token may see
InputSpec fillers_input();     // "fillers", 1 of a sample that only fills the batch up, else 0
// "token_types", which text of a pair a token is of; 0 where the data have no such array.
InputSpec token_types_input(int64_t n_types = 2);
// Inputs of models that see pictures: "pictures", of each row [images, C, S, S]; "merged_rows", of
// each token the row of [token embeddings; what the tower gives of the batch's pictures] that
// stands in its place. Without pictures these are zeros, and the tokens' own.
InputSpec pictures_input(std::vector<int64_t> inner);
InputSpec merged_rows_input();
InputSpec token_labels_input();               // "labels", a token; ignored where there is none
InputSpec row_label_input(std::string name);  // one a row; ignored where there is none

// A batch of text: tokens and labels, and doc_starts unless they are empty.
Batch text_batch(int64_t rows, int64_t seq, std::vector<int32_t> tokens,
                 std::vector<int32_t> labels, std::vector<int32_t> doc_starts = {});

// positions[r * seq + t] = first[r] + t - starts[r * seq + t], where row r holds held[r] tokens;
// behind them the last one's is repeated. Empty spans: 0, 0 and seq.
struct PositionRule {
  std::vector<int32_t> starts = {};
  std::vector<int64_t> first = {}, held = {};
};
std::vector<int32_t> positions_of(int64_t rows, int64_t seq, const PositionRule& rule = {});

// The inputs that follow from a batch: of its tokens positions (by doc_starts), key_ends (of the
// document, without padding), doc_starts of rows that are one document each, token_types of single
// texts; and fillers.
const std::vector<std::string>& completed_inputs();
// Adds the one of them that has this name, unless the batch has it, or it is of tokens and the
// batch has no array a token; any other name changes nothing. Without a name: all of them.
void complete(Batch& batch, std::string_view name);
void complete(Batch& batch);

}  // namespace octet
