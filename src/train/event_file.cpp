#include "train/event_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>

namespace octet {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = crc_table();

void put_little_endian(std::string& out, uint64_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

// Wire types of protocol buffers.
enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_key(std::string& out, uint32_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<uint32_t>(wire));
}
void put_double(std::string& out, uint32_t field, double value) {
  put_key(out, field, Wire::fixed64);
  put_little_endian(out, std::bit_cast<uint64_t>(value), 8);
}
void put_float(std::string& out, uint32_t field, float value) {
  put_key(out, field, Wire::fixed32);
  put_little_endian(out, std::bit_cast<uint32_t>(value), 4);
}
void put_integer(std::string& out, uint32_t field, int64_t value) {
  put_key(out, field, Wire::varint);
  put_varint(out, static_cast<uint64_t>(value));
}
void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Field numbers of Event, SessionLog and Summary.
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr uint32_t kStatus = 1, kStatusStart = 1;
constexpr uint32_t kValue = 1, kTag = 1, kSimpleValue = 2;

std::string event(double wall_time, int64_t step) {
  std::string message;
  put_double(message, kWallTime, wall_time);
  put_integer(message, kStep, step);
  return message;
}

std::string file_name_of(const EventFileStart& start) {
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(start.wall_time),
                     start.host, start.process, start.first_step);
}

// Process numbers repeat where each job is the first process of a container.
std::string free_name(const Files& files, const std::string& path) {
  std::string name = path;
  for (int i = 1; files.entry_kind(name) != EntryKind::none; ++i) {
    name = fmt::format("{}.{}", path, i);
  }
  return name;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint32_t>(byte)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

std::string event_record(std::string_view payload) {
  std::string record;
  put_little_endian(record, payload.size(), 8);
  put_little_endian(record, masked_crc32c(as_bytes(record)), 4);
  record += payload;
  put_little_endian(record, masked_crc32c(as_bytes(payload)), 4);
  return record;
}

EventFile::EventFile(Files& files, const std::string& folder, const EventFileStart& start)
    : file_(files.create(free_name(files, join_path(folder, file_name_of(start))))) {
  std::string version = event(start.wall_time, 0);
  put_bytes(version, kFileVersion, "brain.Event:2");
  std::string status;
  put_integer(status, kStatus, kStatusStart);
  std::string session = event(start.wall_time, start.first_step);
  put_bytes(session, kSessionLog, status);
  file_->write(as_bytes(event_record(version) + event_record(session)));
}

size_t EventFile::append(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, kTag, scalar.tag);
    put_float(value, kSimpleValue, static_cast<float>(scalar.value));
    put_bytes(summary, kValue, value);
  }
  std::string message = event(wall_time, step);
  put_bytes(message, kSummary, summary);
  const std::string record = event_record(message);
  file_->write(as_bytes(record));
  return record.size();
}

}  // namespace octet
