#include "io/safetensors.h"

#include <gtest/gtest.h>

#include "io/model_files.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/io/bytes.h"

namespace octet::io_safetensors_test {
namespace {

using test::as_string;
using test::error_of;
using test::safetensors_bytes;
using test::ScratchFolder;

TEST(SafeDtype, names_and_octet_dtypes_map_both_ways) {
  for (int i = 0; i < enum_count(SafeDtype{}); ++i) {
    const auto stored = static_cast<SafeDtype>(i);
    EXPECT_EQ(safe_dtype_from_name(safe_dtype_name(stored)), stored);
    if (const auto dtype = native_dtype(stored)) {
      const bool is_power = *dtype == Dtype::e8m0;  // Octet's own are U8 that the metadata name
      EXPECT_EQ(stored_as(*dtype), is_power ? SafeDtype::u8 : stored);
      EXPECT_EQ(dtype_bytes(*dtype), element_width(stored));
    }
  }
  for (int i = 1; i < kDtypeCount; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(element_width(stored_as(dtype)), dtype_bytes(dtype)) << dtype_name(dtype);
  }
  EXPECT_FALSE(safe_dtype_from_name("F5"));
}

// All that safetensors 0.8 knows, with the bits of 8 elements.
TEST(Safetensors, every_dtype_of_the_format_is_listed) {
  const std::pair<const char*, int> kBits[] = {
      {"BOOL", 64},        {"F4", 32},         {"F6_E2M3", 48}, {"F6_E3M2", 48}, {"U8", 64},
      {"I8", 64},          {"F8_E5M2", 64},    {"F8_E4M3", 64}, {"F8_E8M0", 64}, {"I16", 128},
      {"U16", 128},        {"F16", 128},       {"BF16", 128},   {"I32", 256},    {"U32", 256},
      {"F32", 256},        {"C64", 512},       {"F64", 512},    {"I64", 512},    {"U64", 512},
      {"F8_E4M3FNUZ", 64}, {"F8_E5M2FNUZ", 64}};
  EXPECT_EQ(std::ssize(kBits), enum_count(SafeDtype{}));
  const ScratchFolder folder;
  for (const auto& [name, bits] : kBits) {
    const auto n = static_cast<size_t>(bits / 8);
    const std::string path =
        folder.put("t", safetensors_bytes(fmt::format(R"({{"__metadata__":null,"a":{{"dtype":"{}",)"
                                                      R"("shape":[2,4],"data_offsets":[0,{}]}}}})",
                                                      name, n),
                                          std::string(n, 'x')));
    const auto reader = SafetensorsReader::open(posix_files(), path);
    EXPECT_EQ(safe_dtype_name(reader.at("a").stored), name);
    EXPECT_EQ(reader.read("a").size(), n) << name;
  }
}

TEST(Safetensors, what_was_written_is_read_back_by_name_and_by_part) {
  const ScratchFolder folder;
  const std::string bytes = "0123456789abcdefghijklmn";
  const auto part = [&](size_t at, size_t n) { return as_bytes(bytes).subspan(at, n); };
  const std::vector<TensorSource> sources = {
      span_source(tensor_decl("codes", Dtype::hif8, {3}), part(0, 3)),
      span_source(tensor_decl("weight", Dtype::f32, {2, 2}), part(3, 16)),
      span_source(tensor_decl("empty", Dtype::bf16, {0, 7}), {}),
      span_source(tensor_decl("scalar", Dtype::bf16, {}), part(19, 2)),
      {tensor_decl("pieces", Dtype::e4m3, {3}),
       [&](const ByteSink& sink) {
         sink(part(21, 1));
         sink(part(22, 2));
       }},
  };
  const auto out = posix_files().create(folder / "t");
  write_safetensors(*out, sources, {{"recipe", "coat"}});
  out->close();
  const auto reader = SafetensorsReader::open(posix_files(), folder / "t");
  EXPECT_EQ(reader.tensors().size(), 5u);
  EXPECT_EQ(as_string(reader.read("codes")), "012");
  EXPECT_EQ(as_string(reader.read("weight")), "3456789abcdefghi");
  EXPECT_EQ(as_string(reader.read("empty")), "");
  EXPECT_EQ(as_string(reader.read("scalar")), "jk");
  EXPECT_EQ(as_string(reader.read("pieces")), "lmn");
  EXPECT_EQ(reader.at("codes").stored, SafeDtype::u8);
  EXPECT_EQ(reader.at("codes").dtype, Dtype::hif8);
  EXPECT_EQ(reader.at("pieces").dtype, Dtype::e4m3);
  EXPECT_EQ(reader.at("weight").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(reader.at("weight").offset % 8, 0u);  // the widest come first
  EXPECT_EQ(reader.metadata().at("recipe"), "coat");
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  EXPECT_EQ(reader.metadata().at("octet.dtype.codes"), "hif8");
  std::vector<std::byte> some(4);
  reader.read(reader.at("weight"), some, 8);
  EXPECT_EQ(as_string(some), "bcde");
  EXPECT_EQ(reader.find("none"), nullptr);
  EXPECT_EQ(error_of([&] { reader.read("none"); }, folder.path()),
            "[safetensors] DIR/t: expected tensor 'none', got none of this name");
}

TEST(Safetensors, no_tensors_is_a_valid_file) {
  const ScratchFolder folder;
  const auto out = posix_files().create(folder / "t");
  write_safetensors(*out, {});
  out->close();
  EXPECT_TRUE(SafetensorsReader::open(posix_files(), folder / "t").tensors().empty());
}

TEST(Safetensors, the_writer_insists_on_the_declared_bytes) {
  const ScratchFolder folder;
  const auto out = posix_files().create(folder / "t");
  for (const char* bytes : {"123", "12345"}) {
    const TensorSource tensor{
        .decl = tensor_decl("a", Dtype::u8, {4}),
        .emit = [&](const ByteSink& sink) { sink(as_bytes(std::string_view(bytes))); }};
    EXPECT_THROW(write_safetensors(*out, {&tensor, 1}), Error) << bytes;
  }
  const std::vector<TensorSource> twice(
      2, span_source(tensor_decl("a", Dtype::u8, {1}), as_bytes(std::string_view("1"))));
  EXPECT_THROW(write_safetensors(*out, twice), Error);
}

TEST(Safetensors, malformed_files_are_refused_with_one_line) {
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}";
  };
  const auto one = [&](const std::string& entry, const std::string& data = "1234") {
    return safetensors_bytes(R"({"a":)" + entry + "}", data);
  };
  const std::string good = tensor("U8", "[4]", "[0,4]");
  const std::string huge = std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  const struct {
    std::string bytes, error;
  } cases[] = {
      {"", "[safetensors] DIR/t: expected at least 8 bytes, got 0"},
      {"1234567", "[safetensors] DIR/t: expected at least 8 bytes, got 7"},
      {huge + "{}",
       "[safetensors] DIR/t: expected a header of at most 100000000 bytes, got "
       "18446744073709551615"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:01\nsize 12\n",
       "[safetensors] DIR/t: expected tensors, got a git-lfs pointer (`git lfs pull` fetches the "
       "file)"},
      {std::string("\x05\0\0\0\0\0\0\0{}", 10),
       "[safetensors] DIR/t: expected a header of 5 bytes, got a file of 10"},
      {safetensors_bytes("", ""), "[json] DIR/t: expected JSON, got a mistake at byte 1"},
      {safetensors_bytes("{\"a\":}", ""), "[json] DIR/t: expected JSON, got a mistake at byte 6"},
      {safetensors_bytes("{} x", ""), "[json] DIR/t: expected JSON, got a mistake at byte 4"},
      {safetensors_bytes("[]", ""), "[json] DIR/t: expected an object, got array"},
      {safetensors_bytes("{\"\xff\":1}", ""),
       "[json] DIR/t: expected JSON, got a mistake at byte 3"},
      {safetensors_bytes(R"({"a":)" + good + R"(,"a":)" + good + "}", "1234"),
       "[json] DIR/t: expected each key once, got 'a' again"},
      {one("1"), "[json] DIR/t: 'a': expected an object, got number"},
      {one(R"({"shape":[4],"data_offsets":[0,4]})"),
       "[json] DIR/t: 'a': expected key 'dtype', got none"},
      {one(R"({"dtype":"U8","data_offsets":[0,4]})"),
       "[json] DIR/t: 'a': expected key 'shape', got none"},
      {one(R"({"dtype":"U8","shape":[4]})"),
       "[json] DIR/t: 'a': expected key 'data_offsets', got none"},
      {one(tensor("F5", "[8]", "[0,4]")), "[safetensors] DIR/t: 'a': dtype 'F5' is not known"},
      {one(tensor("F4", "[7]", "[0,4]")),
       "[safetensors] DIR/t: 'a': expected whole bytes, fewer than 2^63, got [7]"},
      {one(tensor("U8", "4", "[0,4]")),
       "[safetensors] DIR/t: 'a': shape must be an array, got number"},
      {one(tensor("U8", "[-4]", "[0,4]")),
       "[safetensors] DIR/t: 'a': shape must hold integers of 0 or more, got -4"},
      {one(tensor("U8", "[4.0]", "[0,4]")),
       "[safetensors] DIR/t: 'a': shape must hold integers of 0 or more, got 4.0"},
      {one(tensor("U8", "[4]", "[0]")),
       "[safetensors] DIR/t: 'a': data_offsets must be two integers of 0 or more, got [0]"},
      {one(tensor("U8", "[4]", "[-1,3]")),
       "[safetensors] DIR/t: 'a': data_offsets must be two integers of 0 or more, got [-1,3]"},
      {one(tensor("U8", "[4]", "[4,0]")),
       "[safetensors] DIR/t: 'a': expected offsets within 4 data bytes, got [4, 0]"},
      {one(tensor("U8", "[5]", "[0,5]")),
       "[safetensors] DIR/t: 'a': expected offsets within 4 data bytes, got [0, 5]"},
      {one(tensor("F32", "[2]", "[0,4]")),
       "[safetensors] DIR/t: 'a': F32 [2] needs 8 bytes, got 4"},
      {one(tensor("F32", "[4611686018427387904,4]", "[0,4]")),
       "[safetensors] DIR/t: 'a': expected fewer than 2^63 bytes, got [4611686018427387904,4]"},
      {one(tensor("F64", "[4611686018427387904]", "[0,4]")),
       "[safetensors] DIR/t: 'a': expected fewer than 2^63 bytes, got [4611686018427387904]"},
      {one(tensor("U8", "[3]", "[1,4]")),
       "[safetensors] DIR/t: 'a': expected its data at offset 0, got 1"},
      {one(tensor("U8", "[3]", "[0,3]")), "[safetensors] DIR/t: expected 3 data bytes, got 4"},
      {safetensors_bytes(R"({"a":)" + tensor("U8", "[3]", "[0,3]") + R"(,"b":)" +
                             tensor("U8", "[2]", "[2,4]") + "}",
                         "1234"),
       "[safetensors] DIR/t: 'b': expected its data at offset 3, got 2"},
      {safetensors_bytes(R"({"__metadata__":[]})", ""),
       "[safetensors] DIR/t: __metadata__ must be an object, got array"},
      {safetensors_bytes(R"({"__metadata__":{"k":1}})", ""),
       "[safetensors] DIR/t: metadata 'k' must be a string, got 1"},
      {safetensors_bytes(R"({"__metadata__":{"octet.dtype.a":"bf16"},"a":)" + good + "}", "1234"),
       "[safetensors] DIR/t: 'a': format 'bf16' cannot be stored as U8"},
      {safetensors_bytes(R"({"__metadata__":{"octet.dtype.a":"real"},"a":)" + good + "}", "1234"),
       "[safetensors] DIR/t: 'a': format 'real' cannot be stored as U8"},
  };
  const ScratchFolder folder;
  for (const auto& [bytes, error] : cases) {
    const std::string path = folder.put("t", bytes);
    EXPECT_EQ(error_of([&] { SafetensorsReader::open(posix_files(), path); }, folder.path()),
              error);
  }
  // The good entry is good: the table fails for its reasons and no other.
  const std::string path = folder.put("t", one(good));
  EXPECT_EQ(as_string(SafetensorsReader::open(posix_files(), path).read("a")), "1234");
}

// Every cut of a good file and every flipped header bit is refused or still reads within the file.
TEST(Safetensors, no_damage_to_the_header_reads_outside_the_file) {
  const ScratchFolder folder;
  const std::string good =
      safetensors_bytes(R"({"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},)"
                        R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                        "12345678");
  const auto try_reading = [&](const std::string& bytes) {
    const std::string path = folder.put("t", bytes);
    try {
      const auto reader = SafetensorsReader::open(posix_files(), path);
      for (const StoredTensor& tensor : reader.tensors()) reader.read(tensor.name);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_data) << error.what();
      return false;
    }
  };
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(try_reading(good.substr(0, n))) << n;
  for (size_t i = 0; i + 8 < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      try_reading(bytes);
    }
  }
  EXPECT_TRUE(try_reading(good));
}

TEST(ModelFiles, a_folder_of_shards_reads_like_one_file) {
  const ScratchFolder folder;
  const auto shard = [](const std::string& name) {
    return safetensors_bytes("{\"" + name + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                             "x" + name);
  };
  folder.put("m1.safetensors", shard("a"));
  folder.put("m2.safetensors", shard("b"));
  folder.put("model.safetensors.index.json",
             R"({"metadata":{},"weight_map":{"b":"m2.safetensors","a":"m1.safetensors"}})");
  const auto model = ModelFiles::open(posix_files(), folder.path());
  EXPECT_EQ(model.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(as_string(model.read("b")), "xb");
  std::vector<std::byte> part(1);
  model.read("a", part, 1);
  EXPECT_EQ(as_string(part), "a");
  EXPECT_EQ(model.at("a").n_bytes(), 2u);
  EXPECT_EQ(model.find("c"), nullptr);
  EXPECT_EQ(error_of([&] { model.at("c"); }, folder.path()),
            "[model] 'DIR': expected tensor 'c', got none of this name");
  const auto single = ModelFiles::open(posix_files(), folder / "m1.safetensors");
  EXPECT_EQ(single.names(), (std::vector<std::string>{"a"}));
}

TEST(ModelFiles, an_index_that_does_not_fit_is_refused_with_one_line) {
  const struct {
    std::string index, error;
  } cases[] = {
      {R"({"weight_map":{"a":"../m1.safetensors"}})",
       "[model] DIR/model.safetensors.index.json: expected a file of the same folder, got "
       "'../m1.safetensors'"},
      {R"({"weight_map":{"a":1}})",
       "[json] DIR/model.safetensors.index.json: 'a' must be a string, got 1"},
      {R"({"weight_map":{"z":"m1.safetensors"}})",
       "[safetensors] DIR/m1.safetensors: expected tensor 'z', got none of this name"},
      {R"({"weight_map":{"a":"m3.safetensors"}})",
       "[files] cannot open 'DIR/m3.safetensors': No such file or directory"},
      {R"({})", "[json] DIR/model.safetensors.index.json: expected key 'weight_map', got none"},
      {R"({"weight_map":[]})",
       "[json] DIR/model.safetensors.index.json: 'weight_map' must be an object, got array"},
  };
  const ScratchFolder folder;
  EXPECT_EQ(
      error_of([&] { ModelFiles::open(posix_files(), folder.path()); }, folder.path()),
      "[model] 'DIR': expected model.safetensors or model.safetensors.index.json, got neither");
  folder.put("m1.safetensors",
             safetensors_bytes(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", ""));
  for (const auto& [index, error] : cases) {
    folder.put("model.safetensors.index.json", index);
    EXPECT_EQ(error_of([&] { ModelFiles::open(posix_files(), folder.path()); }, folder.path()),
              error);
  }
}

TEST(ModelFiles, the_shared_llama_opens) {
  const std::string path = std::string(OCTET_TEST_DATA) + "/data/weights/stories260K";
  if (!posix_files().exists(path)) GTEST_SKIP() << "shared test data absent: " << path;
  const auto model = ModelFiles::open(posix_files(), path);
  EXPECT_EQ(model.at("model.embed_tokens.weight").shape, (std::vector<int64_t>{512, 64}));
  EXPECT_EQ(model.at("model.layers.0.self_attn.k_proj.weight").dtype, Dtype::f32);
  EXPECT_EQ(model.read("model.norm.weight").size(), 256u);
}

}  // namespace
}  // namespace octet::io_safetensors_test
