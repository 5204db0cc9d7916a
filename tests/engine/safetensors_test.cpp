// Round trips, bytes of the reference implementation, and every way a file can be malformed.
#include "engine/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "engine/errors.h"
#include "engine/file.h"
#include "engine/safetensors_header.h"
#include "tests/support/compare.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::bit_equal;

class Safetensors : public ::testing::Test {
 protected:
  std::string write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }
  // A file of this header text, with the right length in front.
  std::string write_header(const std::string& header, const std::string& buffer = "") const {
    return write(length_of(header.size()) + header + buffer);
  }
  static std::string length_of(uint64_t length) {
    return std::string(reinterpret_cast<const char*>(&length), sizeof length);
  }
  std::string read() const { return std::string(MappedFile(path_).text()); }

  const testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string path_ = folder_ + "/file.safetensors";
};

// Written by the Python package safetensors 0.8.0.
const std::string kReferenceHeader =
    R"({"__metadata__":{"format":"pt"},"ids":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
    R"("s":{"dtype":"F64","shape":[],"data_offsets":[16,24]},)"
    R"("empty":{"dtype":"F32","shape":[0,4],"data_offsets":[24,24]},)"
    R"("weight":{"dtype":"F32","shape":[1,3],"data_offsets":[24,36]},)"
    "\"\xc3\xa9\":"
    R"({"dtype":"U8","shape":[3],"data_offsets":[36,39]}})";
constexpr unsigned char kReferenceBuffer[] = {
    0x07, 0,    0,    0, 0, 0,    0, 0, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0, 0, 0,    0, 0, 0,    0x04, 0x40, 0,    0,
    0xc0, 0x3f, 0,    0, 0, 0xc0, 0, 0, 0x50, 0x40, 0xc8, 1,    2};

std::string reference_file() {
  std::string header = kReferenceHeader;
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(reinterpret_cast<const char*>(kReferenceBuffer), sizeof kReferenceBuffer);
}

TEST_F(Safetensors, ReadsWhatTheReferenceWrites) {
  const SafetensorsFile file = load_safetensors(write(reference_file()));
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.tensors.size(), 5u);
  EXPECT_EQ(file.tensors.at("ids").to_vector<int64_t>(), (std::vector<int64_t>{7, -1}));
  EXPECT_EQ(file.tensors.at("s").shape(), Shape({}));
  EXPECT_EQ(file.tensors.at("s").item<double>(), 2.5);
  EXPECT_EQ(file.tensors.at("empty").shape(), Shape({0, 4}));
  EXPECT_EQ(file.tensors.at("weight").shape(), Shape({1, 3}));
  EXPECT_EQ(file.tensors.at("weight").to_vector<float>(), (std::vector<float>{1.5f, -2, 3.25f}));
  EXPECT_EQ(file.tensors.at("\xc3\xa9").to_vector<uint8_t>(), (std::vector<uint8_t>{200, 1, 2}));
}

TEST_F(Safetensors, WritesTheBytesOfTheReference) {
  const std::vector<NamedTensor> tensors = {
      {"weight", from_values<float>({1.5f, -2, 3.25f}, {1, 3})},
      {"\xc3\xa9", from_values<uint8_t>({200, 1, 2}, {3})},
      {"s", from_values<double>({2.5}, {})},
      {"empty", empty({0, 4})},
      {"ids", from_values<int64_t>({7, -1}, {2})},
  };
  save_safetensors(path_, tensors, {{"format", "pt"}});
  EXPECT_EQ(read(), reference_file());
}

TEST_F(Safetensors, RoundTripKeepsEveryBitOfEveryDType) {
  std::vector<NamedTensor> tensors;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    tensors.push_back({std::string(name_of(dtype)), randn({3, 1, 5}, 1, 2, {dtype, {}})});
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  tensors.push_back({"special", from_values<float>({nan, inf, -inf, -0.0f, 1e-45f}, {5})});
  tensors.push_back({"i32", from_values<int32_t>({INT32_MIN, -1, INT32_MAX}, {3})});
  tensors.push_back({"i64", from_values<int64_t>({INT64_MIN, -1, INT64_MAX}, {3, 1})});
  tensors.push_back({"u8", from_values<uint8_t>({0, 255, 3}, {3})});
  tensors.push_back({"layers.0/\"quoted\"\n\\", zeros({2, 0, 3})});
  tensors.push_back({"", zeros({}, {DType::bf16, {}})});
  const std::map<std::string, std::string> metadata = {
      {"step", "12"}, {"note", "a \"b\"\t\xe2\x82\xac"}};
  save_safetensors(path_, tensors, metadata);
  const SafetensorsFile file = load_safetensors(path_);
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(bit_equal(file.tensors.at(name), tensor, name));
  }
}

TEST_F(Safetensors, StridedTensorIsWrittenRowMajor) {
  const Tensor tensor = from_values<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  const NamedTensor entry{"t", tensor.alias({3, 2}, {1, 3}, 0)};
  save_safetensors(path_, {&entry, 1});
  EXPECT_EQ(
      load_safetensors(path_).tensors.at("t").to_vector<int32_t>(),
      (std::vector<int32_t>{1, 4, 2, 5, 3, 6}));
}

TEST_F(Safetensors, NoTensorsIsAFileToo) {
  save_safetensors(path_, {});
  EXPECT_TRUE(load_safetensors(path_).tensors.empty());
  EXPECT_TRUE(load_safetensors(write_header("{}")).tensors.empty());
}

TEST_F(Safetensors, TensorOutlivesFileAndFolderEntry) {
  Tensor tensor;
  {
    SafetensorsFile file = load_safetensors(write(reference_file()));
    tensor = file.tensors.at("weight");
  }
  std::filesystem::remove(path_);
  EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{1.5f, -2, 3.25f}));
}

TEST_F(Safetensors, WritingToALoadedTensorLeavesTheFileAlone) {
  const SafetensorsFile file = load_safetensors(write(reference_file()));
  fill(file.tensors.at("weight"), 9);
  EXPECT_EQ(file.tensors.at("weight").to_vector<float>(), (std::vector<float>{9, 9, 9}));
  EXPECT_EQ(read(), reference_file());
}

TEST_F(Safetensors, FileMayBeReplacedByItsOwnTensors) {
  const SafetensorsFile file = load_safetensors(write(reference_file()));
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : file.tensors) tensors.push_back({name, tensor});
  save_safetensors(path_, tensors, file.metadata);
  EXPECT_EQ(read(), reference_file());
  EXPECT_EQ(file.tensors.at("weight").to_vector<float>(), (std::vector<float>{1.5f, -2, 3.25f}));
}

TEST_F(Safetensors, MisalignedTensorIsCopiedToAlignedMemory) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"I32","shape":[2],"data_offsets":[1,9]}})";
  const std::string buffer("\x05\x01\x00\x00\x00\x02\x00\x00\x00", 9);
  const SafetensorsFile file = load_safetensors(write_header(header, buffer));
  const Tensor b = file.tensors.at("b");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.raw()) % 4, 0u);
  EXPECT_EQ(b.to_vector<int32_t>(), (std::vector<int32_t>{1, 2}));
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

TEST_F(Safetensors, MalformedLengthIsRefused) {
  struct Case {
    std::string bytes;
    const char* message;
  };
  const Case cases[] = {
      {"", "must hold the 8-byte length of its header, got 0 bytes"},
      {"\x01\x02\x03", "must hold the 8-byte length of its header, got 3 bytes"},
      {length_of(0) + "{}", "header length must be in [1, 100000000], got 0"},
      {length_of(uint64_t{1} << 63) + "{}", "got 9223372036854775808"},
      {length_of(~uint64_t{0}) + "{}", "got 18446744073709551615"},
      {length_of(100'000'001) + "{}", "got 100000001"},
      {length_of(3) + "{}", "header must be 3 bytes long, got 2 bytes before the file ends"},
      {length_of(1), "header must be 1 bytes long, got 0 bytes"},
  };
  for (const Case& c : cases) {
    SLUICE_EXPECT_THROW(load_safetensors(write(c.bytes)), IoError, c.message);
    SLUICE_EXPECT_THROW(load_safetensors(path_), IoError, path_);
  }
}

TEST_F(Safetensors, MalformedHeaderIsRefused) {
  const std::string a = "\"a\":" + entry("U8", "[4]", "[0,4]");
  const std::string json = "header must be JSON in valid UTF-8, got an error at its byte ";
  struct Case {
    std::string header;
    std::string message;
  };
  const Case cases[] = {
      // JSON
      {" {}", "header must begin with '{', got byte 0x20"},
      {"[]", "header must begin with '{', got byte 0x5b"},
      {"\xef\xbb\xbf{}", "header must begin with '{', got byte 0xef"},
      {"{" + a, json},
      {"{" + a + "}}", json},
      {"{" + a + ",}", json},
      {"{" + a + "/* */}", json},
      {"{'a':1}", json},
      {"{\"\xff\":1}", json + "3"},
      {"{\"\xc0\xaf\":1}", json},      // overlong form
      {"{\"\xed\xa0\x80\":1}", json},  // surrogate
      {"{\"\\ud800\":1}", json},       // half a surrogate pair
      {std::string("{}\0", 3), "header must not contain NUL"},
      {"{\"a\":[[[[1]]]]}", "header must be nested at most 3 deep"},
      {"{\"a\":" + std::string(100'000, '['), "header must be nested at most 3 deep"},
      // names
      {"{" + a + "," + a + "}", "names must be unique, got 'a' twice"},
      {"{" + a + ",\"\\u0061\":" + entry("U8", "[0]", "[4,4]") + "}", "got 'a' twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "names must be unique, got 'k' twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       "names must be unique, got 'dtype' twice"},
      // fields
      {R"({"__metadata__":[]})", "__metadata__ must be an object, got array"},
      {R"({"__metadata__":{"k":1}})", "__metadata__ entry 'k' must be a string, got number"},
      {R"({"a":3})", "'a' must be an object, got number"},
      {R"({"a":{"shape":[4],"data_offsets":[0,4]}})", "'a' must have a dtype"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,4]}})", "'a' must have a shape"},
      {R"({"a":{"dtype":"U8","shape":[4]}})", "'a' must have a data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"order":"F"}})",
       "fields of 'a' must be dtype, shape and data_offsets, got 'order'"},
      {"{\"a\":" + entry("F16", "[2]", "[0,4]") + "}", "got F16"},
      {"{\"a\":" + entry("u8", "[4]", "[0,4]") + "}", "got u8"},
      {R"({"a":{"dtype":7,"shape":[4],"data_offsets":[0,4]}})", "got 7"},
      {"{\"a\":" + entry("U8", "4", "[0,4]") + "}", "shape of 'a' must be an array, got number"},
      {"{\"a\":" + entry("U8", "[-4]", "[0,4]") + "}", "must hold integers >= 0, got -4"},
      {"{\"a\":" + entry("U8", "[4.0]", "[0,4]") + "}", "must hold integers >= 0, got 4.0"},
      {"{\"a\":" + entry("U8", "[\"4\"]", "[0,4]") + "}", "must hold integers >= 0, got \"4\""},
      {"{\"a\":" + entry("U8", "[18446744073709551620]", "[0,4]") + "}", "must hold integers"},
      {"{\"a\":" + entry("U8", "[9223372036854775808]", "[0,4]") + "}", "extents below 2^63"},
      {"{\"a\":" + entry("U8", "[4294967296,4294967296]", "[0,0]") + "}", "must fit in 63 bits"},
      {"{\"a\":" + entry("U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]") + "}", "rank must be at most 8"},
      {"{\"a\":" + entry("U8", "[4]", "[0,4,4]") + "}", "data_offsets of 'a' must be 2 numbers"},
      // ranges
      {"{\"a\":" + entry("U8", "[4]", "[4,0]") + "}", "must span the bytes of u8 (4), got [4, 0]"},
      {"{\"a\":" + entry("U8", "[4]", "[0,3]") + "}", "must span the bytes of u8 (4), got [0, 3]"},
      {"{\"a\":" + entry("F32", "[4]", "[0,4]") + "}", "must span the bytes of f32 (4)"},
      {"{\"a\":" + entry("F64", "[4611686018427387904]", "[0,0]") + "}", "must span the bytes"},
      {"{\"a\":" + entry("U8", "[4]", "[18446744073709551612,0]") + "}", "must span the bytes"},
      {"{}", "the last tensor must end at 4 where the file ends, got 0"},
      {"{\"a\":" + entry("U8", "[3]", "[0,3]") + "}", "must end at 4 where the file ends, got 3"},
      {"{\"a\":" + entry("U8", "[5]", "[0,5]") + "}", "must end at 4 where the file ends, got 5"},
      {"{\"a\":" + entry("U8", "[3]", "[1,4]") + "}", "'a' must begin at offset 0"},
      {"{\"a\":" + entry("U8", "[1]", "[0,1]") + ",\"b\":" + entry("U8", "[2]", "[2,4]") + "}",
       "'b' must begin at offset 1 where the tensor before it ends, got 2"},
      {"{" + a + ",\"b\":" + entry("U8", "[2]", "[2,4]") + "}", "'b' must begin at offset 4"},
      {"{" + a + ",\"b\":" + entry("U8", "[4]", "[0,4]") + "}", "must begin at offset 4"},
      {"{" + a + ",\"b\":" + entry("U8", "[0]", "[2,2]") + "}", "must begin at offset 4"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.header.substr(0, 200));
    SLUICE_EXPECT_THROW(load_safetensors(write_header(c.header, "1234")), IoError, c.message);
    SLUICE_EXPECT_THROW(load_safetensors(path_), IoError, path_);
  }
  EXPECT_NO_THROW(load_safetensors(write_header("{" + a + "}", "1234")));
}

TEST(SafetensorsHeader, EmptyTextIsRefused) {
  SLUICE_EXPECT_THROW(
      parse_safetensors_header("file", "", 0), IoError, "file: header must begin with '{'");
}

TEST_F(Safetensors, EveryPrefixOfAFileIsRefused) {
  const std::string whole = reference_file();
  write(whole);
  for (size_t length = whole.size(); length-- > 0;) {
    std::filesystem::resize_file(path_, length);
    EXPECT_THROW(load_safetensors(path_), IoError) << length;
  }
  EXPECT_THROW(load_safetensors(write(whole + "x")), IoError);
}

TEST_F(Safetensors, SaveRefusesWhatItCouldNotReadBack) {
  auto save = [&](std::vector<NamedTensor> tensors, std::map<std::string, std::string> meta = {}) {
    save_safetensors(path_, tensors, meta);
  };
  const Tensor t = zeros({2});
  SLUICE_EXPECT_THROW((save({{"a", t}, {"a", t}}), 0), ArgumentError, "got 'a' twice");
  SLUICE_EXPECT_THROW((save({{"a", Tensor()}}), 0), ArgumentError, "'a' must be defined");
  SLUICE_EXPECT_THROW((save({{"__metadata__", t}}), 0), ArgumentError, "reserved");
  SLUICE_EXPECT_THROW((save({{"\xff", t}}), 0), ArgumentError, "valid UTF-8");
  SLUICE_EXPECT_THROW((save({}, {{"k", "\xff"}}), 0), ArgumentError, "valid UTF-8");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Safetensors, MissingFileNamesPathAndReason) {
  SLUICE_EXPECT_THROW(load_safetensors(path_), IoError, path_ + ": cannot open: No such file");
  SLUICE_EXPECT_THROW(load_safetensors(folder_), IoError, "must be a regular file");
}

}  // namespace
}  // namespace sluice
