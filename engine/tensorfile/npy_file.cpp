#include "engine/tensorfile/npy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/io/json_object.h"

namespace attnscope {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::int64_t kMostNpyElements = std::int64_t{1} << 40;
constexpr std::size_t kMostNpyAxes = 32;

struct NpyType {
  const char* name;  // without the order of bytes
  ElementType type;
};
constexpr NpyType kNpyTypes[] = {
    {"f8", ElementType::kF64}, {"f4", ElementType::kF32}, {"f2", ElementType::kF16},
    {"i8", ElementType::kI64}, {"i4", ElementType::kI32}, {"i2", ElementType::kI16},
    {"i1", ElementType::kI8},  {"u8", ElementType::kU64}, {"u4", ElementType::kU32},
    {"u2", ElementType::kU16}, {"u1", ElementType::kU8},  {"b1", ElementType::kBool}};

struct NpyHeader {
  std::optional<std::string> descr;
  std::optional<bool> fortran;
  std::optional<std::vector<std::int64_t>> shape;
};

// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }: what a dict of Python looks like.
class NpyHeaderReader {
 public:
  explicit NpyHeaderReader(std::string_view text) : text_(text) {}

  bool read(NpyHeader& out) {
    if (!take("{")) return false;
    while (!take("}")) {
      const auto key = quoted();
      if (!key || !take(":")) return false;
      if (*key == "descr" && !out.descr) {
        out.descr = quoted();
        if (!out.descr) return false;
      } else if (*key == "fortran_order" && !out.fortran) {
        const bool yes = take("True");
        if (!yes && !take("False")) return false;
        out.fortran = yes;
      } else if (*key == "shape" && !out.shape) {
        out.shape.emplace();
        if (!shape(*out.shape)) return false;
      } else {
        return false;
      }
      if (take(",")) continue;
      if (!take("}")) return false;
      break;
    }
    skip();
    return at_ == text_.size() && out.descr && out.fortran && out.shape;
  }

 private:
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(std::string_view word) {
    skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::optional<std::string> quoted() {
    skip();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }
  bool shape(std::vector<std::int64_t>& out) {
    if (!take("(")) return false;
    while (!take(")")) {
      skip();
      std::int64_t n = 0;
      const char* const end = text_.data() + text_.size();
      const auto read = std::from_chars(text_.data() + at_, end, n);
      if (read.ec != std::errc() || n < 0 || out.size() == kMostNpyAxes) return false;
      at_ = static_cast<std::size_t>(read.ptr - text_.data());
      out.push_back(n);
      if (take(",")) continue;
      if (!take(")")) return false;
      break;
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// To C order and to this machine's order of bytes.
std::shared_ptr<std::vector<std::uint8_t>> in_c_order(const TensorEntry& e, bool fortran,
                                                      bool swap) {
  const auto size = static_cast<std::size_t>(element_bits(e.type) / 8);
  auto out = std::make_shared<std::vector<std::uint8_t>>(e.bytes);
  std::vector<std::int64_t> at(e.shape.size());  // index of element i in C order
  for (std::int64_t i = 0; i < e.elements; ++i) {
    std::int64_t from = i;
    if (fortran) {
      from = 0;
      for (std::size_t a = at.size(); a-- > 0;) from = from * e.shape[a] + at[a];
      for (std::size_t a = at.size(); a-- > 0 && ++at[a] == e.shape[a];) at[a] = 0;
    }
    std::uint8_t* to = out->data() + static_cast<std::size_t>(i) * size;
    std::memcpy(to, e.data + static_cast<std::size_t>(from) * size, size);
    if (swap) std::reverse(to, to + size);
  }
  return out;
}

}  // namespace

bool is_npy(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= kNpyMagic.size() &&
         std::memcmp(bytes.data(), kNpyMagic.data(), kNpyMagic.size()) == 0;
}

Result<OwnedEntry> read_npy(std::span<const std::uint8_t> bytes, const std::string& path,
                            const std::string& name) {
  const auto wrong = [&](const std::string& what, const std::string& hint) {
    return bad_input(fmt::format("{}: array {}: {}", path, shown_name(name), what), hint);
  };
  const char* const damaged = "the file was damaged or cut off: write it again";
  if (!is_npy(bytes) || bytes.size() < 12) return wrong("is not what numpy.save() writes", damaged);
  const int version = bytes[6];
  if (version < 1 || version > 3) {
    return wrong(fmt::format("has version {} of its format, 1 to 3 are read", version), damaged);
  }
  const std::size_t prefix = version == 1 ? 10 : 12;
  std::size_t length = 0;
  for (std::size_t i = prefix; i-- > 8;) length = length << 8 | bytes[i];
  if (length > bytes.size() - prefix) return wrong("its header is cut off", damaged);
  NpyHeader header;
  NpyHeaderReader reader({reinterpret_cast<const char*>(bytes.data()) + prefix, length});
  if (!reader.read(header)) {
    return wrong("its header is none of an array of plain values",
                 "write each field of a structured array as an array of its own");
  }
  const std::string_view descr = *header.descr;
  const auto* const type = std::ranges::find_if(
      kNpyTypes, [&](const NpyType& t) { return descr.size() == 3 && descr.substr(1) == t.name; });
  if (type == std::end(kNpyTypes) || std::string_view("<>|=").find(descr[0]) == std::string::npos) {
    if (descr.ends_with("O")) {
      return wrong("holds Python objects, which lie in a pickle that is not read",
                   "write arrays of numbers");
    }
    return wrong(fmt::format("has values of type {}, which is not read", shown_name(descr)),
                 "numbers, integers and truth values are read; bf16 and fp8 have no type here: "
                 "write float32, or the codes with "
                 "view(numpy.uint8), or a file of safetensors");
  }
  TensorEntry entry;
  entry.name = name;
  entry.type = type->type;
  entry.shape = *header.shape;
  entry.elements = 1;
  for (const std::int64_t n : entry.shape) {
    if (n != 0 && entry.elements > kMostNpyElements / n) return wrong("is too large", damaged);
    entry.elements *= n;
  }
  const std::size_t size = static_cast<std::size_t>(element_bits(entry.type) / 8);
  entry.bytes = static_cast<std::size_t>(entry.elements) * size;
  if (entry.bytes != bytes.size() - prefix - length) {
    return wrong(fmt::format("its shape takes {} bytes, there are {}", entry.bytes,
                             bytes.size() - prefix - length),
                 damaged);
  }
  entry.data = bytes.data() + prefix + length;
  const bool swap = descr[0] == '>' && size > 1;
  const bool turn = *header.fortran && entry.shape.size() > 1;
  if (!swap && !turn) return OwnedEntry{std::move(entry), nullptr};
  auto copy = in_c_order(entry, turn, swap);
  entry.data = copy->data();
  return OwnedEntry{std::move(entry), std::move(copy)};
}

}  // namespace attnscope
