// Plain values to bytes and back, for files that only the program that wrote them reads. Reading is
// bounds-checked: after the first value that does not fit, everything read is empty and ok() false.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace attnscope {

class ByteWriter {
 public:
  void bytes(const void* data, std::size_t n) {
    const auto* p = static_cast<const std::uint8_t*>(data);
    out_.insert(out_.end(), p, p + n);
  }
  template <class T>
  void value(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&v, sizeof(v));
  }
  template <class T>
  void list(const std::vector<T>& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    value(std::uint64_t{v.size()});
    bytes(v.data(), v.size() * sizeof(T));
  }
  void text(const std::string& s) {
    value(std::uint64_t{s.size()});
    bytes(s.data(), s.size());
  }
  const std::vector<std::uint8_t>& out() const { return out_; }

 private:
  std::vector<std::uint8_t> out_;
};

class ByteReader {
 public:
  ByteReader(const std::uint8_t* data, std::size_t n) : at_(data), left_(n) {}

  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && left_ == 0; }
  void fail() { ok_ = false; }

  // nullptr when there are fewer.
  const std::uint8_t* bytes(std::size_t n) {
    if (!ok_ || n > left_) {
      ok_ = false;
      return nullptr;
    }
    const std::uint8_t* p = at_;
    at_ += n;
    left_ -= n;
    return p;
  }
  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T v{};
    if (const std::uint8_t* p = bytes(sizeof(T))) std::memcpy(&v, p, sizeof(T));
    return v;
  }
  // Number of items that follow, each of at least `smallest` bytes.
  std::size_t count(std::size_t smallest) {
    const auto n = value<std::uint64_t>();
    if (n > left_ / smallest) fail();
    return ok_ ? static_cast<std::size_t>(n) : 0;
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> v(count(sizeof(T)));
    const std::uint8_t* p = bytes(v.size() * sizeof(T));
    if (p != nullptr && !v.empty()) std::memcpy(v.data(), p, v.size() * sizeof(T));
    return v;
  }
  std::string text() {
    const std::size_t n = count(1);
    const std::uint8_t* p = bytes(n);
    return p != nullptr ? std::string(reinterpret_cast<const char*>(p), n) : std::string();
  }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
  bool ok_ = true;
};

// 64-bit checksum; any change inside one word changes it.
std::uint64_t checksum(const std::uint8_t* data, std::size_t n);

}  // namespace attnscope
