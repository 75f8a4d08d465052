#include "engine/tensorfile/zip_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/io/json_object.h"

#ifdef ATTNSCOPE_HAS_PACKING
#include <archive.h>
#include <archive_entry.h>
#endif

namespace attnscope {
namespace {

// Signatures and sizes of APPNOTE.TXT, 4.3.
constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56, kLocatorBytes = 20, kLongestComment = 65535;
constexpr std::uint64_t kMostDeflated = 1032;  // bytes that one of deflate can stand for
const char* const kZipCutOff = "the file was damaged or cut off: write it again";

class ZipBytesReader {
 public:
  explicit ZipBytesReader(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint64_t size() const { return bytes_.size(); }
  bool has(std::uint64_t at, std::uint64_t count) const {
    return at <= size() && count <= size() - at;
  }
  // Little endian; has() was asked.
  std::uint64_t number(std::uint64_t at, int width) const {
    std::uint64_t n = 0;
    for (int i = width; i-- > 0;) n = n << 8 | bytes_[at + static_cast<std::uint64_t>(i)];
    return n;
  }
  std::span<const std::uint8_t> part(std::uint64_t at, std::uint64_t count) const {
    return bytes_.subspan(at, count);
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

struct ZipDirectory {
  std::uint64_t at = 0, bytes = 0;
};

std::optional<ZipDirectory> find_directory(const ZipBytesReader& file) {
  if (file.size() < kEndBytes) return std::nullopt;
  const std::uint64_t last = file.size() - kEndBytes;
  const std::uint64_t first = last > kLongestComment ? last - kLongestComment : 0;
  for (std::uint64_t at = last + 1; at-- > first;) {
    if (file.number(at, 4) != kEnd) continue;
    ZipDirectory out{file.number(at + 16, 4), file.number(at + 12, 4)};
    if (at >= kLocatorBytes && file.number(at - kLocatorBytes, 4) == kLocator64) {
      const std::uint64_t end64 = file.number(at - kLocatorBytes + 8, 8);
      if (!file.has(end64, kEnd64Bytes) || file.number(end64, 4) != kEnd64) return std::nullopt;
      out = {file.number(end64 + 48, 8), file.number(end64 + 40, 8)};
    }
    if (!file.has(out.at, out.bytes)) return std::nullopt;
    return out;
  }
  return std::nullopt;
}

#ifdef ATTNSCOPE_HAS_PACKING
// Reads until the member has its size: what the directory says is believed piece by piece.
Result<ZipBytes> inflate(const ZipMember& member, const std::string& path,
                         std::span<const std::uint8_t> file) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> in(archive_read_new(),
                                                                  archive_read_free);
  archive_read_support_format_zip(in.get());
  const auto wrong = [&](const std::string& what) {
    return bad_input(fmt::format("{}: member {}: {}", path, shown_name(member.name), what),
                     kZipCutOff);
  };
  if (archive_read_open_memory(in.get(), file.data(), file.size()) != ARCHIVE_OK) {
    return wrong("cannot be read");
  }
  archive_entry* entry = nullptr;
  while (true) {
    const int status = archive_read_next_header(in.get(), &entry);
    if (status == ARCHIVE_EOF) return wrong("has no bytes");
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) return wrong("cannot be read");
    const char* name = archive_entry_pathname(entry);
    if (name != nullptr && member.name == name) break;
  }
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  auto bytes = std::make_shared<std::vector<std::uint8_t>>();
  while (bytes->size() <= member.size) {
    const std::size_t had = bytes->size();
    bytes->resize(std::min<std::uint64_t>(had + kPiece, member.size + 1));
    const la_ssize_t got = archive_read_data(in.get(), bytes->data() + had, bytes->size() - had);
    if (got < 0) return wrong("its deflated bytes are damaged");
    bytes->resize(had + static_cast<std::size_t>(got));
    if (got == 0) break;
  }
  if (bytes->size() != member.size) {
    return wrong(fmt::format("is not the {} bytes that the directory says", member.size));
  }
  return ZipBytes{*bytes, bytes};
}
#endif

}  // namespace

bool is_zip(std::span<const std::uint8_t> bytes) {
  const ZipBytesReader file(bytes);
  return file.has(0, 4) && (file.number(0, 4) == kLocal || file.number(0, 4) == kEnd);
}

Result<ZipFile> ZipFile::open(const std::string& path, MappedFile mapped) {
  const ZipBytesReader file(mapped.bytes());
  const auto directory = find_directory(file);
  if (!directory) {
    return bad_input(path + ": is a zip archive without a directory at its end", kZipCutOff);
  }
  const auto wrong = [&](const std::string& name, const char* what) {
    return bad_input(fmt::format("{}: member {} {}", path, shown_name(name), what), kZipCutOff);
  };
  ZipFile out;
  out.path_ = path;
  std::uint64_t at = directory->at;
  const std::uint64_t end = directory->at + directory->bytes;
  while (at < end) {
    if (end - at < kCentralBytes || file.number(at, 4) != kCentral) {
      return bad_input(path + ": its directory is damaged", kZipCutOff);
    }
    const std::uint64_t flags = file.number(at + 8, 2), method = file.number(at + 10, 2);
    const std::uint64_t name_bytes = file.number(at + 28, 2), extra = file.number(at + 30, 2);
    const std::uint64_t entry_bytes = kCentralBytes + name_bytes + extra + file.number(at + 32, 2);
    if (entry_bytes > end - at) return bad_input(path + ": its directory is damaged", kZipCutOff);
    std::uint64_t packed = file.number(at + 20, 4), size = file.number(at + 24, 4);
    std::uint64_t local = file.number(at + 42, 4);
    const auto text = file.part(at + kCentralBytes, name_bytes);
    ZipMember member;
    member.name.assign(text.begin(), text.end());
    // Sizes beyond 32 bits lie in the extra field with id 1, those alone that do not fit.
    std::uint64_t field = at + kCentralBytes + name_bytes;
    const std::uint64_t fields_end = field + extra;
    while (fields_end - field >= 4) {
      const std::uint64_t id = file.number(field, 2), bytes = file.number(field + 2, 2);
      if (bytes > fields_end - field - 4) break;
      std::uint64_t value = field + 4;
      for (std::uint64_t* n : {&size, &packed, &local}) {
        if (id != 1 || *n != 0xffffffff || value + 8 > field + 4 + bytes) continue;
        *n = file.number(value, 8);
        value += 8;
      }
      field += 4 + bytes;
    }
    at += entry_bytes;
    if ((flags & 1) != 0) return wrong(member.name, "is encrypted");
    if (method != 0 && method != 8) return wrong(member.name, "is packed in an unknown way");
    if (!file.has(local, kLocalBytes) || file.number(local, 4) != kLocal) {
      return wrong(member.name, "begins outside of the file");
    }
    const std::uint64_t begin =
        local + kLocalBytes + file.number(local + 26, 2) + file.number(local + 28, 2);
    if (!file.has(begin, packed)) return wrong(member.name, "reaches beyond the file");
    member.stored = method == 0;
    member.size = size;
    if (member.stored && size != packed) return wrong(member.name, "has two sizes");
    if (!member.stored && size / kMostDeflated > packed) {
      return wrong(member.name, "says that it is larger than its bytes can be");
    }
    member.bytes = file.part(begin, packed);
    if (!out.by_name_.emplace(member.name, out.members_.size()).second) {
      return wrong(member.name, "is there twice");
    }
    out.members_.push_back(std::move(member));
  }
  out.file_ = std::move(mapped);
  return out;
}

const ZipMember* ZipFile::find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &members_[it->second];
}

Result<ZipBytes> ZipFile::read(const ZipMember& member) const {
  if (member.stored) return ZipBytes{member.bytes, file_.owner()};
#ifdef ATTNSCOPE_HAS_PACKING
  return inflate(member, path_, file_.bytes());
#else
  return Error{AS_NO_ENVIRONMENT,
               fmt::format("{}: member {} is deflated", path_, shown_name(member.name)),
               "build with libarchive, or write it without compression"};
#endif
}

}  // namespace attnscope
