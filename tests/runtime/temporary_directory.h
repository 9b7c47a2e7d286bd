// A directory of a test's own, removed with everything in it, and files to put there.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/safetensors.h"
#include "base/tensor.h"

namespace tesser::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tesser-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      std::abort();
    }
    path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  ASSERT_TRUE(stream.good()) << path;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A .npy file of format 1.0 with this header dictionary, padded as numpy does.
inline std::string npy(std::string header, const std::string& data) {
  while ((10 + header.size() + 1) % 64 != 0) {
    header += ' ';
  }
  header += '\n';
  std::string text = "\x93NUMPY";
  text += '\x01';
  text += '\x00';
  text += static_cast<char>(header.size() & 0xFF);
  text += static_cast<char>(header.size() >> 8);
  return text + header + data;
}

inline std::string npy(const std::string& descriptor, const std::string& shape, const std::string& data) {
  return npy("{'descr': '" + descriptor + "', 'fortran_order': False, 'shape': " + shape + ", }", data);
}

template <typename T>
void write_safetensors(const std::filesystem::path& path, const std::string& name, DType dtype, const Shape& shape,
                       const std::vector<T>& values) {
  auto writer = SafetensorsWriter::create(AtomicFile::create(path).value(), {{name, dtype, shape}});
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  ASSERT_TRUE(writer->write(name, {dtype, shape, values.data()}).has_value());
  ASSERT_TRUE(writer->commit().has_value());
}

}  // namespace tesser::test
