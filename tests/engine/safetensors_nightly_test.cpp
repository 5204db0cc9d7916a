// Random files: what the reader accepts it reads right, everything else is an IoError in little
// time. The oracle here reads the file by its own, lenient means.
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/errors.h"
#include "engine/file.h"
#include "engine/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/fuzz.h"
#include "tests/support/temporary_folder.h"

namespace sluice {
namespace {

using testing::bit_equal;
using testing::for_each_fuzz_case;
using testing::Random;

constexpr DType kDTypes[] = {
    DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8};
constexpr size_t kLengthBytes = 8;

std::string random_bytes(Random& random, size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = char(random.below(256));
  return bytes;
}

std::string random_name(Random& random) {
  std::string name;
  for (int64_t length = random.between(0, 6); length > 0; --length) {
    name += random.pick({"a", "layers.", "0", "\"", "\\", "\n", "\xc3\xa9", "{", ",", ":", "\x01"});
  }
  return name;
}

/// Any bits, also those of NaN, of a shape of any rank, seen through permuted strides now and then.
Tensor random_tensor(Random& random) {
  std::vector<int64_t> dims(size_t(random.between(0, 8)));
  for (int64_t& extent : dims) extent = random.pick({0, 1, 1, 1, 2, 2, 3, 5});
  const DType dtype = random.pick(std::span(kDTypes));
  const Tensor dense = empty(Shape(dims), {dtype, {}});
  const std::string bytes = random_bytes(random, size_t(dense.numel()) * size_of(dtype));
  if (!bytes.empty()) std::memcpy(dense.raw(), bytes.data(), bytes.size());
  if (dims.size() < 2 || random.chance(0.5)) return dense;
  Strides strides = dense.strides();
  std::swap(dims.front(), dims.back());
  std::swap(strides[0], strides[dims.size() - 1]);
  return dense.alias(Shape(dims), strides, 0);
}

struct Contents {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

Contents random_contents(Random& random) {
  Contents contents;
  std::set<std::string> names{"__metadata__"};
  for (int64_t count = random.between(0, 6); count > 0; --count) {
    const std::string name = random_name(random);
    if (names.insert(name).second) contents.tensors.push_back({name, random_tensor(random)});
  }
  for (int64_t count = random.between(0, 2); count > 0; --count) {
    contents.metadata[random_name(random)] = random_name(random);
  }
  return contents;
}

class SafetensorsFuzz : public ::testing::Test {
 protected:
  void write(const std::string& bytes) const {
    std::filesystem::remove(path_);  // file systems flush a file that is truncated and rewritten
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  std::string saved(const Contents& contents) const {
    save_safetensors(path_, contents.tensors, contents.metadata);
    return std::string(MappedFile(path_).text());
  }
  /// Some files to damage: to save one for each case would take as long as the disk's flush.
  std::vector<std::string> saved_files() const {
    Random random(testing::number_from_environment("SLUICE_FUZZ_SEED", 1), UINT64_MAX);
    std::vector<std::string> files;
    while (files.size() < 100) files.push_back(saved(random_contents(random)));
    return files;
  }

  /// True when the reader took `bytes`; then it must have taken them right.
  bool read_and_check(const std::string& bytes) const {
    write(bytes);
    const std::clock_t begin = std::clock();
    std::optional<SafetensorsFile> file;
    try {
      file = load_safetensors(path_);
    } catch (const IoError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(path_ + ": ")) << error.what();
    }
    EXPECT_LT(double(std::clock() - begin) / CLOCKS_PER_SEC, 2) << bytes.size() << " bytes";
    if (file) expect_right(*file, bytes);
    return file.has_value();
  }

  const testing::TemporaryFolder temporary_;
  const std::string path_ = temporary_ / "file.safetensors";

 private:
  static void expect_right(const SafetensorsFile& file, const std::string& bytes) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), kLengthBytes);
    ASSERT_LE(length, bytes.size() - kLengthBytes);
    const auto header = nlohmann::json::parse(bytes.substr(kLengthBytes, length));
    const std::string buffer = bytes.substr(kLengthBytes + length);
    EXPECT_EQ(file.tensors.size(), header.size() - header.count("__metadata__"));
    size_t covered = 0;
    for (const auto& [name, tensor] : file.tensors) {
      const auto& entry = header.at(name);
      EXPECT_EQ(
          std::vector<int64_t>(tensor.shape().dims().begin(), tensor.shape().dims().end()),
          entry.at("shape").get<std::vector<int64_t>>());
      const auto begin = entry.at("data_offsets").at(0).get<size_t>();
      const size_t size = size_t(tensor.numel()) * size_of(tensor.dtype());
      EXPECT_EQ(entry.at("data_offsets").at(1).get<size_t>(), begin + size);
      ASSERT_LE(begin + size, buffer.size());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % size_of(tensor.dtype()), 0u);
      // Touches every byte that the reader promised.
      EXPECT_TRUE(size == 0 || std::memcmp(tensor.raw(), buffer.data() + begin, size) == 0) << name;
      covered += size;
    }
    EXPECT_EQ(covered, buffer.size());
  }
};

TEST_F(SafetensorsFuzz, RandomTensorsSurviveTheRoundTrip) {
  for_each_fuzz_case(300, [&](Random& random) {
    const Contents contents = random_contents(random);
    const std::string bytes = saved(contents);
    const SafetensorsFile file = load_safetensors(path_);
    EXPECT_EQ(file.metadata, contents.metadata);
    ASSERT_EQ(file.tensors.size(), contents.tensors.size());
    Contents again{{}, file.metadata};
    for (const auto& [name, tensor] : contents.tensors) {
      EXPECT_TRUE(bit_equal(file.tensors.at(name), tensor, name));
      again.tensors.push_back({name, file.tensors.at(name)});
    }
    EXPECT_EQ(saved(again), bytes);
  });
}

std::string with_length(const std::string& header, const std::string& buffer) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + header + buffer;
}

/// Replaces, inserts or deletes a few bytes.
void edit(Random& random, std::string& text, size_t begin = 0) {
  for (int64_t edits = random.between(1, 4); edits > 0 && text.size() > begin; --edits) {
    const size_t at = begin + random.below(text.size() - begin);
    switch (random.below(4)) {
      case 0:
        text[at] = char(uint8_t(text[at]) ^ 1u << random.below(8));
        break;
      case 1:
        text[at] = char(random.below(256));
        break;
      case 2:
        text.insert(at, random_bytes(random, 1 + random.below(3)));
        break;
      default:
        text.erase(at, 1 + random.below(3));
    }
  }
}

TEST_F(SafetensorsFuzz, DamagedFilesAreReadRightOrRefused) {
  const std::vector<std::string> files = saved_files();
  int taken = 0;
  const bool all = for_each_fuzz_case(20000, [&](Random& random) {
    const std::string whole = random.pick(files);
    uint64_t length = 0;
    std::memcpy(&length, whole.data(), kLengthBytes);
    std::string bytes = whole;
    switch (random.below(5)) {
      case 0:
        bytes.resize(random.below(whole.size()));
        break;
      case 1:
        bytes += random_bytes(random, 1 + random.below(20));
        break;
      case 2: {  // part of another file in place of a part of this one
        const std::string other = random.pick(files);
        const size_t begin = random.below(whole.size());
        const size_t from = random.below(other.size());
        bytes.replace(
            begin,
            random.below(whole.size() - begin + 1),
            other.substr(from, random.below(other.size() - from + 1)));
        break;
      }
      case 3: {  // the length still fits, so the damage reaches the parser
        std::string header = whole.substr(kLengthBytes, length);
        edit(random, header);
        bytes = with_length(header, whole.substr(kLengthBytes + length));
        break;
      }
      default:
        edit(random, bytes);
    }
    taken += read_and_check(bytes) ? 1 : 0;
  });
  EXPECT_TRUE(!all || taken > 100) << "the damage left too few readable files: " << taken;
}

TEST_F(SafetensorsFuzz, DamagedDataIsReadAsItStands) {
  const std::vector<std::string> files = saved_files();
  for_each_fuzz_case(1000, [&](Random& random) {
    std::string bytes = random.pick(files);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), kLengthBytes);
    for (size_t at = kLengthBytes + length; at < bytes.size(); ++at) {
      if (random.chance(0.2)) bytes[at] = char(random.below(256));
    }
    EXPECT_TRUE(read_and_check(bytes));
  });
}

/// `number` now and then replaced by what a careless reader would fall for.
std::string doubtful(Random& random, uint64_t number) {
  if (random.chance(0.97)) return std::to_string(number);
  return random.pick(
      {"-1",
       "4.0",
       "1e3",
       "2147483648",
       "4294967296",
       "9223372036854775807",
       "9223372036854775808",
       "18446744073709551615",
       "18446744073709551616",
       "null",
       "\"4\"",
       "[]"});
}

/// Entries that tile a buffer of `end` bytes but for some doubtful numbers and names.
std::string random_header(Random& random, uint64_t& end) {
  constexpr std::pair<const char*, uint64_t> kKnown[] = {
      {"F32", 4}, {"BF16", 2}, {"F64", 8}, {"I32", 4}, {"I64", 8}, {"U8", 1}, {"F16", 2}};
  std::string header = "{";
  for (int64_t count = random.between(1, 4); count > 0; --count) {
    if (header.size() > 1) header += ',';
    auto [dtype, bytes] = random.pick(std::span(kKnown));
    std::string shape;
    for (int64_t rank = random.between(0, 3); rank > 0; --rank) {
      const uint64_t extent = random.below(5);
      bytes *= extent;
      if (!shape.empty()) shape += ',';
      shape += doubtful(random, extent);
    }
    header += fmt::format(
        R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
        random.chance(0.95) ? count : 1,
        dtype,
        shape,
        doubtful(random, end),
        doubtful(random, end + bytes));
    end += bytes;
  }
  return header + "}";
}

TEST_F(SafetensorsFuzz, RandomHeadersAreReadRightOrRefused) {
  int taken = 0;
  const bool all = for_each_fuzz_case(20000, [&](Random& random) {
    uint64_t end = 0;
    const std::string header = random_header(random, end);
    taken += read_and_check(with_length(header, random_bytes(random, end))) ? 1 : 0;
  });
  EXPECT_TRUE(!all || (taken > 2000 && taken < 18000)) << taken;
}

}  // namespace
}  // namespace sluice
