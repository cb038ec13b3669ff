// Which rows come when: of every kind of data, its orders, packings and epochs, micro-batches of
// two ranks, evaluations, and of a run that goes on from a state that was recorded.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/hash.h"
#include "config/load.h"
#include "data/images/image_rows.h"
#include "data/masked_rows.h"
#include "data/token_rows.h"
#include "golden/golden_text.h"
#include "infer/array_rows.h"
#include "train/row_data.h"
#include "train/run_setup.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/put_arrays.h"

namespace octet::golden_rows {
namespace {

constexpr int64_t kSteps = 6, kSavedStep = 3, kRanks = 2;

// Documents of these lengths. Tokens count up; of a conversation the first half of each is not
// trained.
class Numbers : public TokenSource {
 public:
  Numbers(const std::vector<int64_t>& lengths, bool is_chat, int32_t base) : base_(base) {
    for (const int64_t n : lengths) {
      for (int64_t i = 0; i < n; ++i) {
        const bool is_given = is_chat && 2 * i < n;
        flags_.push_back(
            static_cast<uint8_t>((i == 0 ? kDocumentStart : 0) | (is_given ? kNotTrained : 0)));
      }
    }
  }
  int64_t n_tokens() const override { return std::ssize(flags_); }
  uint64_t identity() const override { return flags_.size(); }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<size_t>(first) + i;
      tokens[i] = base_ + static_cast<int32_t>(at);
      flags[i] = flags_[at];
    }
  }

 private:
  std::vector<uint8_t> flags_;
  int32_t base_;
};

TokenStream documents(bool is_chat, int32_t base = 1) {
  const std::vector<int64_t> lengths = {6, 12, 4, 9, 3, 41, 2, 7, 17, 5, 10, 8, 20};
  return TokenStream({std::make_shared<Numbers>(lengths, is_chat, base)});
}

TokenStream few_documents() {
  const std::vector<int64_t> lengths = {5, 4, 9};
  return TokenStream({std::make_shared<Numbers>(lengths, true, 1)});
}

TokenStream weighted(bool is_chat) {
  const std::pair<TokenStream, double> parts[] = {{documents(is_chat), 0.5},
                                                  {documents(is_chat, 301), 1.5}};
  return TokenStream::weighted(parts);
}

class Pictures : public ImageSource {
 public:
  int64_t n_images() const override { return 11; }
  int32_t label(int64_t image) const override { return static_cast<int32_t>(image % 4); }
  std::string name_of(int64_t image) const override { return fmt::format("picture {}", image); }
  std::vector<std::string> classes() const override { return {}; }
  uint64_t identity() const override { return 99; }
  Image decode(int64_t image) const override {
    if (image == 5) throw Error(ErrorCode::bad_data, "[images] damaged");
    Image result(1, 4, 4);
    for (size_t i = 0; i < result.pixels.size(); ++i)
      result.pixels[i] = static_cast<uint8_t>(16 * image + static_cast<int64_t>(i));
    return result;
  }
};

std::shared_ptr<const RowSource> pictures() {
  const std::vector<InputSpec> inputs = {
      {.name = "pixels", .per = Per::row, .inner = {16}, .type = HostType::real},
      {.name = "labels", .per = Per::row, .fill = Fill::ignored}};
  return image_rows(
      std::make_shared<Pictures>(), inputs,
      {.crop = ImageCrop::random, .pad = 1, .flip = true, .mean = {0}, .std_dev = {1.0f / 255}});
}

std::shared_ptr<const RowSource> hidden_tokens() {
  return masked_rows(documents(false), {.seq = 8,
                                        .before = {401},
                                        .behind = {402},
                                        .padding = 403,
                                        .labels = token_labels_input(),
                                        .masking = {.seed = 7,
                                                    .mask_token = 404,
                                                    .vocab = 405,
                                                    .special_tokens = {401, 402, 403},
                                                    .chosen = 0.4}});
}

std::shared_ptr<const RowSource> pairs() {
  TokenRows rows;
  std::vector<float> targets;
  for (int32_t row = 0; row < 26; ++row) {
    std::vector<int32_t> tokens(static_cast<size_t>(1 + row % 8), row);
    rows.add_row(tokens, {});
    targets.push_back(row % 5 == 0 ? NAN : static_cast<float>(row));
  }
  InputSpec target = row_label_input("target");
  target.type = HostType::real;
  rows.of_rows = {{target, std::move(targets)}};
  return token_rows(std::move(rows), {.rows_per_sample = 2, .padding = 77});
}

std::shared_ptr<const RowSource> arrays(const test::ScratchFolder& folder) {
  std::vector<std::string> paths;
  for (const int64_t n : {6, 7}) {
    std::vector<int32_t> tokens, labels, lengths;
    for (int32_t i = 0; i < n * 8; ++i) tokens.push_back(static_cast<int32_t>(n) * 100 + i);
    for (int32_t i = 0; i < n * 8; ++i) labels.push_back(i % 3 == 0 ? kIgnoredLabel : i);
    for (int32_t i = 0; i < n; ++i) lengths.push_back(1 + i);
    paths.push_back(test::put_arrays(folder / fmt::format("{}.safetensors", n),
                                     {test::array_of("tokens", SafeDtype::i32, {n, 8}, tokens),
                                      test::array_of("labels", SafeDtype::i32, {n, 8}, labels),
                                      test::array_of("lengths", SafeDtype::i32, {n}, lengths)}));
  }
  return array_rows(posix_files(), paths,
                    {.inputs = {tokens_input(), token_labels_input()}, .seq = 8});
}

struct Case {
  std::string name;
  Dataset data;
  RunConfig config;
};

Dataset text_of(const TokenStream& train, const TokenStream& val = {}) {
  Dataset data;
  data.train = train;
  data.val = val;
  return data;
}

Dataset samples_of(const std::shared_ptr<const RowSource>& rows) {
  Dataset data;
  const int64_t n = rows->n_samples();
  data.train_rows = slice_rows(rows, 0, n - 4);
  data.val_rows = slice_rows(rows, n - 4, n);
  return data;
}

RunConfig run_config(WindowOrder order) {
  RunConfig config = parse_config("", "a.yaml", {"model.seq=8", "train.seed=5"}).config;
  config.train.batch = 2;
  config.train.accumulate = 2;
  config.train.eval_bytes = 90;
  config.parallel.ranks = kRanks;
  config.data.sampling = order;
  return config;
}

constexpr WindowOrder kOrders[] = {WindowOrder::sequential, WindowOrder::shuffled,
                                   WindowOrder::random};

void add_windows(std::vector<Case>& cases) {
  for (const WindowOrder order : kOrders) {
    const auto add = [&](std::string_view what, const Dataset& data,
                         DocumentBoundaries boundaries) {
      Case& one = cases.emplace_back(fmt::format("windows, {}, {}", enum_name(order), what), data,
                                     run_config(order));
      one.config.data.document_boundaries = boundaries;
    };
    const Dataset data = text_of(documents(false), documents(false, 201));
    for (const auto boundaries :
         {DocumentBoundaries::ignore, DocumentBoundaries::mask_labels, DocumentBoundaries::isolate})
      add(enum_name(boundaries), data, boundaries);
    if (order == WindowOrder::random) continue;
    add("weighted", text_of(weighted(false)), DocumentBoundaries::ignore);
  }
}

void add_documents(std::vector<Case>& cases) {
  const Dataset data = text_of(documents(true), documents(true, 201));
  for (const WindowOrder order : {WindowOrder::sequential, WindowOrder::shuffled}) {
    for (const char* rows : {"packed", "single", "buckets"}) {
      for (const TooLong too_long : {TooLong::drop, TooLong::truncate, TooLong::split}) {
        Case& one = cases.emplace_back(
            fmt::format("{}, {}, {}", rows, enum_name(order), enum_name(too_long)), data,
            run_config(order));
        one.config.data.pack = rows[0] == 'p';
        one.config.data.chat.chat_template = "some";
        one.config.data.too_long = too_long;
        one.config.data.buckets = rows[0] == 'b' ? 2 : 1;
        one.config.model.seq = rows[0] == 'b' ? 32 : 16;
        if (rows[0] == 'p') one.config.data.document_boundaries = DocumentBoundaries::isolate;
        if (too_long != TooLong::drop) continue;
        cases.emplace_back(one.name + ", few", text_of(few_documents()), one.config);
        cases.emplace_back(one.name + ", weighted", text_of(weighted(true)), one.config);
      }
    }
  }
}

std::vector<Case> all_cases(const test::ScratchFolder& folder) {
  std::vector<Case> cases;
  cases.reserve(64);
  add_windows(cases);
  add_documents(cases);
  const std::pair<const char*, std::shared_ptr<const RowSource>> sources[] = {
      {"hidden tokens", hidden_tokens()},
      {"pairs", pairs()},
      {"pictures", pictures()},
      {"arrays", arrays(folder)}};
  for (const auto& [name, rows] : sources) {
    for (const WindowOrder order : kOrders) {
      cases.emplace_back(fmt::format("{}, {}", name, enum_name(order)), samples_of(rows),
                         run_config(order));
    }
  }
  return cases;
}

// All that a batch holds, in 32 bits; its numbers are whole but for rounding.
std::string hash_of(const Batch& batch) {
  Xxh64 hash;
  const auto add = [&](const auto& values) { hash.update(std::as_bytes(std::span(values))); };
  for (const HostTensor& tensor : batch.tensors) {
    hash.update(tensor.spec.name);
    if (const auto* ints = std::get_if<std::vector<int32_t>>(&tensor.values)) {
      add(*ints);
      continue;
    }
    std::vector<int64_t> rounded;
    for (const float value : std::get<std::vector<float>>(tensor.values))
      rounded.push_back(std::isnan(value) ? -1000 : std::llround(16 * value));
    add(rounded);
  }
  add(batch.lengths);
  add(batch.fillers);
  return fmt::format("{:08x}", hash.digest() >> 32);
}

// Its rows' first items, to see in what order they come.
std::string text_of(const Batch& batch) {
  std::string text = fmt::format(" [{}:", batch.seq);
  for (int64_t row = 0; row < batch.batch; ++row) {
    const auto at = static_cast<size_t>(row * batch.seq);
    if (batch.find("tokens") != nullptr) {
      text += fmt::format(" {}", batch.ints("tokens")[at]);
    } else {
      text += fmt::format(" {}", std::lround(batch.reals("pixels")[static_cast<size_t>(16 * row)]));
    }
  }
  return text + " " + hash_of(batch) + "]";
}

std::string step_text(const RowLoader& loader, const RunConfig& config, int64_t step) {
  const RowCounts counts = loader.count(config.step_rows());
  std::string text = fmt::format("{}: epoch {}, row {}, {} of {} tokens", step, loader.epoch(),
                                 loader.rows_consumed(), counts.n_tokens, counts.n_padded_tokens);
  for (const auto& [name, n] : counts.items) text += fmt::format(", {} {}", n, name);
  for (int64_t i = 0; i < config.train.accumulate; ++i) {
    for (int64_t rank = 0; rank < kRanks; ++rank)
      text += text_of(loader.peek((i * kRanks + rank) * config.train.batch, config.train.batch));
  }
  return text + "\n";
}

std::string state_text(const LoaderState& state) {
  std::string text = "state";
  for (const auto& [key, value] : state) text += fmt::format("|{}={}", key, value);
  return text + "\n";
}

std::string training_text(const Case& one) {
  auto loader = make_loader(one.data, one.config);
  std::string text = fmt::format("{} and {} rows; {}\n", loader.rows_of_epoch(0),
                                 loader.rows_of_epoch(1), loader.description());
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == kSavedStep) text += state_text(loader.state());
    text += step_text(loader, one.config, step);
    loader.advance(one.config.step_rows());
  }
  return text;
}

std::string evaluation_text(const Case& one) {
  if (!has_validation(one.data)) return "";
  ModelSpec spec;
  spec.vocab = 256;
  std::vector<int64_t> shorter = make_loader(one.data, one.config).lengths();
  std::erase(shorter, one.config.model.seq);
  const auto rows = make_eval_rows(one.data, one.config, spec, shorter);
  std::string text = fmt::format("evaluation of {:016x}, {} rows:",
                                 validation_identity(one.data, one.config, spec), rows->n_rows());
  for (int64_t first = 0; first < rows->n_rows(); first += kRanks * one.config.train.batch) {
    for (int64_t rank = 0; rank < kRanks; ++rank)
      text += text_of(rows->at(first + rank * one.config.train.batch, one.config.train.batch));
  }
  return text + "\n";
}

TEST(Rows, come_in_the_order_that_was_recorded) {
  const test::ScratchFolder folder;
  std::string now;
  for (const Case& one : all_cases(folder))
    now += "== " + one.name + "\n" + training_text(one) + evaluation_text(one);
  test::expect_golden("rows/rows.txt", now);
}

// The lines behind "== name" whose first word is that.
std::vector<std::string> recorded(const std::string& name) {
  const std::string all = posix_files().read_text(test::golden_path("rows/rows.txt"));
  const size_t begin = all.find("== " + name + "\n"), end = all.find("\n== ", begin);
  std::vector<std::string> lines;
  for (size_t at = begin; at < std::min(end, all.size());) {
    const size_t next = all.find('\n', at) + 1;
    lines.push_back(all.substr(at, next - at));
    at = next;
  }
  return lines;
}

TEST(Rows, of_a_recorded_state_go_on_as_recorded) {
  const test::ScratchFolder folder;
  for (const Case& one : all_cases(folder)) {
    const std::vector<std::string> lines = recorded(one.name);
    ASSERT_GT(lines.size(), static_cast<size_t>(kSteps + 2)) << one.name;
    const std::string& saved = lines[2 + kSavedStep];
    LoaderState state;
    for (size_t at = saved.find('|'); at != std::string::npos; at = saved.find('|', at + 1)) {
      const std::string item = saved.substr(at + 1, saved.find_first_of("|\n", at + 1) - at - 1);
      state[item.substr(0, item.find('='))] = item.substr(item.find('=') + 1);
    }
    auto loader = make_loader(one.data, one.config);
    loader.restore(state);
    for (int64_t step = kSavedStep; step < kSteps; ++step) {
      EXPECT_EQ(step_text(loader, one.config, step), lines[static_cast<size_t>(3 + step)])
          << one.name;
      loader.advance(one.config.step_rows());
    }
  }
}

}  // namespace
}  // namespace octet::golden_rows
