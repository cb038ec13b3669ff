// Event files, read by a small parser of protocol buffers written for this test alone.
#include "train/event_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "unit/base/scratch_folder.h"

namespace octet::train_event_file_test {
namespace {

using test::ScratchFolder;

uint32_t crc_of(std::string_view text) {
  return crc32c(as_bytes(text));
}

// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(Crc32c, equals_the_published_values) {
  EXPECT_EQ(crc_of("123456789"), 0xE3069283u);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc_of(std::string(32, '\xFF')), 0x62A8AB43u);
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc_of(rising), 0x46DD794Eu);
  EXPECT_EQ(crc_of(falling), 0x113FDB5Cu);
  EXPECT_EQ(crc_of(""), 0u);
}

// One bit at a time, as the polynomial is defined.
uint32_t slow_crc32c(std::string_view text) {
  uint32_t crc = ~0u;
  for (const char ch : text) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t in = (static_cast<uint32_t>(static_cast<unsigned char>(ch)) >> bit) & 1;
      crc = (crc >> 1) ^ ((crc ^ in) & 1 ? 0x82F63B78u : 0);
    }
  }
  return ~crc;
}

uint32_t slow_mask(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

template <typename T>
T little_endian(std::string_view& in) {
  T value{};
  if (in.size() < sizeof(T)) throw std::runtime_error("too short");
  std::memcpy(&value, in.data(), sizeof(T));
  in.remove_prefix(sizeof(T));
  return value;
}

uint64_t varint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = little_endian<uint8_t>(in);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

struct Field {
  uint64_t integer = 0;
  double number = 0;
  std::string bytes;
};
using Message = std::multimap<uint32_t, Field>;

Message parse_message(std::string_view in) {
  Message message;
  while (!in.empty()) {
    const uint64_t key = varint(in);
    Field field;
    switch (key & 7) {
      case 0:
        field.integer = varint(in);
        break;
      case 1:
        field.number = little_endian<double>(in);
        break;
      case 2: {
        const uint64_t n = varint(in);
        field.bytes = std::string(in.substr(0, n));
        if (field.bytes.size() != n) throw std::runtime_error("too short");
        in.remove_prefix(n);
        break;
      }
      case 5:
        field.number = static_cast<double>(little_endian<float>(in));
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
    message.emplace(static_cast<uint32_t>(key >> 3), field);
  }
  return message;
}

const Field& only(const Message& message, uint32_t field) {
  if (message.count(field) != 1) throw std::runtime_error("expected the field once");
  return message.find(field)->second;
}

std::vector<Message> read_events(const std::string& path) {
  const std::string text = posix_files().read_text(path);
  std::vector<Message> events;
  for (std::string_view in = text; !in.empty();) {
    const std::string_view length_bytes = in.substr(0, 8);
    const auto length = little_endian<uint64_t>(in);
    EXPECT_EQ(little_endian<uint32_t>(in), slow_mask(slow_crc32c(length_bytes)));
    const std::string_view payload = in.substr(0, length);
    in.remove_prefix(length);
    EXPECT_EQ(little_endian<uint32_t>(in), slow_mask(slow_crc32c(payload)));
    events.push_back(parse_message(payload));
  }
  return events;
}

std::map<std::string, double> scalars_of(const Message& event) {
  std::map<std::string, double> result;
  const Message summary = parse_message(only(event, 5).bytes);
  for (const auto& [field, value] : summary) {
    EXPECT_EQ(field, 1u);
    const Message entry = parse_message(value.bytes);
    result[only(entry, 1).bytes] = only(entry, 2).number;
  }
  return result;
}

TEST(EventFile, never_takes_the_place_of_another_one) {
  const ScratchFolder folder;
  const EventFileStart start{.wall_time = 1700000000.5, .host = "box", .process = 1};
  const EventFile first(posix_files(), folder.path(), start);
  const EventFile second(posix_files(), folder.path(), start);
  EXPECT_EQ(posix_files().list(folder.path()).size(), 2u);
}

TEST(EventFile, holds_version_start_and_scalars) {
  const ScratchFolder folder;
  EventFile file(posix_files(), folder.path(),
                 {.wall_time = 1700000000.5, .host = "box", .process = 42, .first_step = 301});
  const double inf = std::numeric_limits<double>::infinity();
  file.append(1700000001.25, 301, std::vector<Scalar>{{"loss", 2.5}, {"lr", 1e-3}});
  file.append(1700000002, 70000, std::vector<Scalar>{{"loss", std::nan("")}, {"grad_norm", inf}});
  const auto events = read_events(folder / "events.out.tfevents.1700000000.box.42.301");
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(only(events[0], 3).bytes, "brain.Event:2");
  EXPECT_EQ(only(events[1], 2).integer, 301u);
  EXPECT_EQ(only(parse_message(only(events[1], 7).bytes), 1).integer, 1u);
  EXPECT_EQ(only(events[2], 1).number, 1700000001.25);
  EXPECT_EQ(only(events[2], 2).integer, 301u);
  const std::map<std::string, double> expected = {{"loss", 2.5},
                                                  {"lr", static_cast<double>(1e-3F)}};
  EXPECT_EQ(scalars_of(events[2]), expected);
  EXPECT_EQ(only(events[3], 2).integer, 70000u);
  EXPECT_TRUE(std::isnan(scalars_of(events[3]).at("loss")));
  EXPECT_EQ(scalars_of(events[3]).at("grad_norm"), inf);
}

}  // namespace
}  // namespace octet::train_event_file_test
