#include "infer/picture_prompt.h"

#include <algorithm>

#include "base/error.h"
#include "data/chat_pictures.h"
#include "infer/image_transforms.h"
#include "nn/vision.h"

namespace octet {

std::string image_mark(const Tokenizer& tokenizer, const ModelSpec& spec) {
  const auto id = static_cast<int32_t>(spec.image_token);
  const bool is_known = id < tokenizer.vocab_size();
  std::string mark = is_known ? tokenizer.decode(std::span(&id, 1)) : "";
  if (!mark.empty() &&
      tokenizer.encode(mark, {.special = SpecialText::parse}) == std::vector<int32_t>{id})
    return mark;
  throw Error(ErrorCode::invalid_argument,
              "model.image_token: expected the id of a token of its own of data.tokenizer, which "
              "stands for a picture, got {}{}",
              id, is_known ? " ('" + mark + "')" : ", which it lacks");
}

int64_t picture_tokens(const ModelSpec& spec) {
  constexpr int64_t kAround = 3;
  if (!model_def(spec.kind).sees_pictures) return 0;
  return spec.images * (picture_rows(spec) + (spec.kind == ModelKind::idefics3 ? kAround : 0));
}

namespace {

// Tokens that idefics3 has around a picture's. Throws Error{invalid_argument} where the tokenizer
// lacks one.
std::vector<int32_t> tokens_around(const Tokenizer& tokenizer,
                                   std::initializer_list<const char*> texts) {
  std::vector<int32_t> ids;
  for (const char* text : texts) {
    const auto id = tokenizer.special_id(text);
    if (!id) {
      throw Error(ErrorCode::invalid_argument,
                  "data.tokenizer: expected a token {}, which stands around pictures of idefics3, "
                  "got none",
                  text);
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

PictureRowsOptions picture_options(const ModelSpec& spec, const ImagesConfig& images,
                                   const Tokenizer& tokenizer) {
  PictureRowsOptions options{.labels = {},
                             .pictures = pictures_of(spec),
                             .image_token = static_cast<int32_t>(spec.image_token),
                             .rows_per_picture = picture_rows(spec),
                             .transforms = transforms_of(images)};
  if (spec.kind == ModelKind::idefics3) {
    constexpr const char* kAround = "<fake_token_around_image>";
    options.before = tokens_around(tokenizer, {kAround, "<global-img>"});
    options.behind = tokens_around(tokenizer, {kAround});
  }
  options.transforms.channels = spec.channels;
  options.transforms.size = spec.image_size;
  check_transforms(options.transforms);
  return options;
}

std::string with_marks(const std::string& text, const std::string& mark, size_t n_pictures) {
  size_t n_marks = 0;
  for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + mark.size()))
    ++n_marks;
  if (n_marks == n_pictures) return text;
  if (n_marks > 0) {
    throw Error(ErrorCode::invalid_argument,
                "--image: expected a picture for each {} of the prompt, {}, got {}", mark, n_marks,
                n_pictures);
  }
  std::string result;
  for (size_t i = 0; i < n_pictures; ++i) result += mark + "\n";
  return result + text;
}

std::string rendered_messages(const ChatPrompts& chat, OrderedJson messages,
                              const std::string& mark, size_t n_pictures) {
  const auto has_marks = [&](const std::string& rendered) {
    return rendered.find(mark) != rendered.npos;
  };
  if (n_pictures == 0 || !chat.takes_parts_alone()) {
    try {
      std::string rendered = chat.render({{"messages", messages}});
      if (n_pictures == 0 || has_marks(rendered)) return rendered;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_data) throw;
    }
  }
  split_into_parts(messages, mark);
  return chat.render({{"messages", messages}});
}

std::string rendered_question(const ChatPrompts& chat, const std::string& text,
                              const std::string& mark, size_t n_pictures) {
  const std::string content = with_marks(text, mark, n_pictures);
  return rendered_messages(chat, OrderedJson::array({{{"role", "user"}, {"content", content}}}),
                           mark, n_pictures);
}

PlacedTokens placed_prompt(const PictureRowsOptions& options, const std::vector<int32_t>& ids,
                           int64_t n_pictures) {
  const int64_t n_most = options.pictures.inner[0];
  if (n_pictures > n_most) {
    throw Error(ErrorCode::invalid_argument, "--image: expected at most {} pictures, got {}",
                n_most, n_pictures);
  }
  return place_rows(ids, std::vector<uint8_t>(ids.size()), n_pictures, options);
}

PicturePrompt picture_prompt(const Files& files, const PictureRowsOptions& options,
                             const std::vector<int32_t>& ids,
                             const std::vector<std::string>& pictures) {
  PlacedTokens placed = placed_prompt(options, ids, std::ssize(pictures));
  PicturePrompt result{.prompt = {.tokens = std::move(placed.ids)},
                       .pictures = {.pixels = {}, .rows = std::move(placed.rows)}};
  result.pictures.pixels.resize(static_cast<size_t>(options.pictures.n_inner()));
  const size_t n = result.pictures.pixels.size() / static_cast<size_t>(options.pictures.inner[0]);
  for (size_t i = 0; i < pictures.size(); ++i) {
    read_picture(files, {{.path = pictures[i]}, "--image"}, options.transforms, {},
                 std::span(result.pictures.pixels).subspan(i * n, n));
  }
  return result;
}

void expect_no_pictures(const ModelSpec& spec, std::span<const int32_t> ids,
                        std::string_view what) {
  if (!model_def(spec.kind).sees_pictures) return;
  if (std::ranges::count(ids, static_cast<int32_t>(spec.image_token)) == 0) return;
  throw Error(ErrorCode::invalid_argument,
              "{}: expected no token {} (model.image_token), which stands for a picture, but "
              "beside --image, got one",
              what, spec.image_token);
}

void add_pictures(const ModelSpec& model, std::span<const EntryPictures> entries,
                  const PositionRule& places, Batch& batch) {
  const InputSpec spec = pictures_of(model);
  const int64_t n_rows = model.images * picture_rows(model), seq = batch.seq;
  std::vector<int32_t> merged(static_cast<size_t>(batch.batch * seq));
  bool is_any = false;
  for (size_t entry = 0; entry < entries.size(); ++entry) {
    const std::vector<int32_t>& all = entries[entry].rows;
    std::vector<int32_t> rows(static_cast<size_t>(seq), -1);
    const int64_t first = places.first[entry];
    for (int64_t t = 0; t < places.held[entry] && first + t < std::ssize(all); ++t)
      rows[static_cast<size_t>(t)] = all[static_cast<size_t>(first + t)];
    is_any = is_any || std::ranges::any_of(rows, [](int32_t row) { return row >= 0; });
    const auto place = static_cast<int64_t>(entry);
    write_merged_rows(rows, place * seq, std::ssize(merged), place * n_rows,
                      std::span(merged).subspan(entry * rows.size(), rows.size()));
  }
  if (!is_any) return;
  if (seq == 1) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected a text behind the last picture of a prompt, got none");
  }
  batch.set(merged_rows_input(), std::move(merged));
  auto& pixels = std::get<std::vector<float>>(batch.add(spec).values);
  for (size_t entry = 0; entry < entries.size(); ++entry) {
    const std::vector<float>& own = entries[entry].pixels;
    std::ranges::copy(own, pixels.begin() + static_cast<int64_t>(entry) * spec.n_inner());
  }
}

}  // namespace octet
