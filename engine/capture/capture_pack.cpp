#include "engine/capture/capture_pack.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "engine/capture/capture.h"
#include "engine/capture/tar_header.h"
#include "engine/io/atomic_file.h"
#include "engine/io/folder_swap.h"
#include "engine/io/json_object.h"
#include "engine/io/mapped_file.h"

#ifdef ATTNSCOPE_HAS_ZSTD
#include <zstd.h>
#endif

namespace attnscope {

#ifdef ATTNSCOPE_HAS_ZSTD
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{1} << 20;
constexpr std::uint64_t kLargestMember = std::uint64_t{8} << 30;  // what eleven octal digits hold

// Whether a capture has a file of this name: nothing else is read from an archive or put into one.
bool belongs(const std::string& name) {
  if (name == "index.json" || name == "steps.jsonl" || name == "traces.jsonl" ||
      name == "weights.safetensors") {
    return true;
  }
  for (const std::string folder : {"payload/", "cache/"}) {
    if (!name.starts_with(folder) || !name.ends_with(".safetensors")) continue;
    const std::string digits = name.substr(folder.size(), name.size() - folder.size() - 12);
    return !digits.empty() && digits.size() <= 15 &&
           digits.find_first_not_of("0123456789") == std::string::npos;
  }
  return false;
}

class Compressor {
 public:
  Compressor(AtomicFile& file, int level) : file_(file), stream_(ZSTD_createCCtx(), ZSTD_freeCCtx) {
    ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_checksumFlag, 1);
    ZSTD_CCtx_setParameter(stream_.get(), ZSTD_c_nbWorkers,
                           2);  // refused by builds without threads
  }
  Result<void> add(const void* data, std::size_t bytes) {
    return feed(data, bytes, ZSTD_e_continue);
  }
  Result<void> finish() { return feed(nullptr, 0, ZSTD_e_end); }
  std::uint64_t written() const { return written_; }

 private:
  Result<void> feed(const void* data, std::size_t bytes, ZSTD_EndDirective how) {
    ZSTD_inBuffer in{data, bytes, 0};
    while (true) {
      ZSTD_outBuffer out{buffer_.data(), buffer_.size(), 0};
      const std::size_t left = ZSTD_compressStream2(stream_.get(), &out, &in, how);
      if (ZSTD_isError(left)) return internal_error(ZSTD_getErrorName(left));
      if (auto ok = file_.append(buffer_.data(), out.pos); !ok) return ok;
      written_ += out.pos;
      if (how == ZSTD_e_end ? left == 0 : in.pos == in.size) return {};
    }
  }

  AtomicFile& file_;
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> stream_;
  std::vector<char> buffer_ = std::vector<char>(kBuffer);
  std::uint64_t written_ = 0;
};

// Reads a mapped archive front to back.
class Decompressor {
 public:
  explicit Decompressor(std::span<const std::uint8_t> bytes)
      : in_{bytes.data(), bytes.size(), 0}, stream_(ZSTD_createDCtx(), ZSTD_freeDCtx) {}

  // Fewer than asked for: the end, or damage (then damaged()).
  std::size_t read(char* to, std::size_t bytes) {
    ZSTD_outBuffer out{to, bytes, 0};
    while (out.pos < bytes && !damaged_) {
      const std::size_t before = in_.pos, had = out.pos;
      const std::size_t left = ZSTD_decompressStream(stream_.get(), &out, &in_);
      if (ZSTD_isError(left)) damaged_ = true;
      if (in_.pos == before && out.pos == had) {  // nothing is left to read
        damaged_ = damaged_ || !ended_;
        break;
      }
      ended_ = left == 0;
    }
    return out.pos;
  }
  bool damaged() const { return damaged_; }

 private:
  ZSTD_inBuffer in_;
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> stream_;
  bool damaged_ = false;
  bool ended_ = false;  // the frame is whole
};

// Goes through the files of an archive once.
class Archive {
 public:
  Archive(std::string path, std::span<const std::uint8_t> bytes)
      : path_(std::move(path)), in_(bytes) {}

  Error damaged(const std::string& what) const {
    return bad_input(fmt::format("{}: damaged: {}", path_, what),
                     "pack it again, or copy it again from where it came");
  }

  // `take` is given each file, whose bytes it reads with read().
  Result<PackTotals> each(const std::function<Result<void>(const TarEntry& entry)>& take) {
    PackTotals totals;
    while (true) {
      TarBlock block;
      if (in_.read(block.data(), block.size()) != block.size()) {
        return damaged(totals.files == 0 ? "is no packed capture" : "it is cut off");
      }
      auto entry = read_tar_header(block);
      if (!entry) return damaged("a header does not fit its checksum, or is of no plain file");
      if (entry->end) break;
      while (entry->name.starts_with("./")) entry->name.erase(0, 2);
      if (entry->folder) continue;
      if (!belongs(entry->name) || entry->size >= kLargestMember) {
        return damaged(fmt::format("{} is no file of a capture", shown_name(entry->name)));
      }
      ++totals.files;
      totals.bytes += entry->size;
      if (auto ok = take(*entry); !ok) return ok.error();
      const std::size_t padding = (kTarBlock - entry->size % kTarBlock) % kTarBlock;
      if (in_.read(block.data(), padding) != padding) return damaged(entry->name + " is cut off");
    }
    // The end of the stream, with its checksum.
    char rest[kTarBlock];
    for (std::size_t n = 0; in_.read(rest, sizeof(rest)) == sizeof(rest); ++n) {
      if (n * kTarBlock > kMostPadding) return damaged("something follows its end");
    }
    if (in_.damaged()) return damaged("its bytes do not fit their checksum");
    return totals;
  }

  // All bytes of a file, in parts.
  Result<void> read(const TarEntry& entry,
                    const std::function<Result<void>(const char* data, std::size_t bytes)>& part) {
    for (std::uint64_t left = entry.size; left > 0;) {
      const std::size_t want = std::min<std::uint64_t>(left, buffer_.size());
      if (in_.read(buffer_.data(), want) != want) return damaged(entry.name + " is cut off");
      if (auto ok = part(buffer_.data(), want); !ok) return ok;
      left -= want;
    }
    return {};
  }

 private:
  static constexpr std::size_t kMostPadding = std::size_t{1} << 20;  // other programs fill records

  std::string path_;
  Decompressor in_;
  std::vector<char> buffer_ = std::vector<char>(kBuffer);
};

// Reads headers and the index, and writes nothing.
Result<void> check_sizes(const std::string& path, std::span<const std::uint8_t> bytes,
                         const std::string& folder, const UnpackOptions& options) {
  constexpr std::uint64_t kLargestIndex = std::uint64_t{64} << 20;
  const std::uint64_t most =
      options.large ? UINT64_MAX : std::max(kUnpackFree, kUnpackRatio * bytes.size());
  Archive archive(path, bytes);
  std::uint64_t total = 0, others = 0;
  std::string index_text;
  const auto too_large = [&](std::uint64_t wanted) {
    return bad_input(fmt::format("{}: a file of {} bytes that unpacks to {} bytes or more", path,
                                 bytes.size(), wanted),
                     "if you know where it comes from: attnscope unpack --large");
  };
  auto listed = archive.each([&](const TarEntry& entry) -> Result<void> {
    total += entry.size;
    // Before its bytes are gone through.
    if (total > most) return too_large(total);
    const bool is_index = entry.name == "index.json";
    if (is_index && entry.size > kLargestIndex) return archive.damaged("index.json is too large");
    if (!is_index) others += entry.size;
    if (is_index) index_text.clear();
    return archive.read(entry, [&](const char* data, std::size_t n) -> Result<void> {
      if (is_index) index_text.append(data, n);
      return {};
    });
  });
  if (!listed) return listed.error();
  auto index = parse_index(index_text, path);
  if (!index) return index.error();
  if (index->bytes > 0 && others > index->bytes) {
    return archive.damaged(
        fmt::format("its files have {} bytes, index.json says {}", others, index->bytes));
  }
  std::error_code code;
  const fs::path parent = fs::absolute(folder, code).parent_path();
  const fs::space_info space = fs::space(parent, code);
  if (!code && total > space.available) {
    return bad_input(fmt::format("{}: unpacks to {} bytes, and {} has {} left", path, total,
                                 parent.string(), space.available),
                     "make room on the disk, or unpack it elsewhere");
  }
  return {};
}

Result<PackTotals> extract_all(Archive& archive, const std::string& folder) {
  return archive.each([&](const TarEntry& entry) -> Result<void> {
    auto file = AtomicFile::create(folder + "/" + entry.name);
    if (!file) return file.error();
    auto ok = archive.read(
        entry, [&](const char* data, std::size_t bytes) { return file->append(data, bytes); });
    return ok ? file->commit(Sync::kNo) : ok;
  });
}

}  // namespace

std::string zstd_version() { return ZSTD_versionString(); }

Result<PackTotals> pack_capture(const std::string& folder, const std::string& path, int level) {
  auto capture = Capture::open(folder);
  if (!capture) return capture.error();
  std::error_code code;
  if (fs::is_directory(path, code)) return bad_input(path + ": is a folder, not a file");
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  Compressor out(*file, level);
  PackTotals totals;
  std::vector<std::string> names;
  const fs::path root = (*capture)->path();
  for (const auto& entry : fs::recursive_directory_iterator(root, code)) {
    if (entry.is_symlink(code)) {
      return bad_input(fmt::format("{}: is a link, and is not packed", entry.path().string()),
                       "put the file itself in its place");
    }
    if (entry.is_regular_file(code))
      names.push_back(fs::relative(entry.path(), root, code).string());
  }
  if (code) return bad_input(fmt::format("{}: cannot be listed: {}", folder, code.message()));
  std::ranges::sort(names);
  for (const std::string& name : names) {
    if (!belongs(name)) continue;
    auto content = MappedFile::open((root / name).string());
    if (!content) return content.error();
    const auto bytes = content->bytes();
    if (bytes.size() >= kLargestMember) {
      return bad_input(fmt::format("{}/{}: larger than 8 GiB", folder, name),
                       "record fewer rows or ops a step");
    }
    const TarBlock header = tar_header(name, bytes.size());
    if (auto ok = out.add(header.data(), header.size()); !ok) return ok.error();
    if (auto ok = out.add(bytes.data(), bytes.size()); !ok) return ok.error();
    const TarBlock zeros{};
    const std::size_t padding = (kTarBlock - bytes.size() % kTarBlock) % kTarBlock;
    if (auto ok = out.add(zeros.data(), padding); !ok) return ok.error();
    ++totals.files;
    totals.bytes += bytes.size();
  }
  const std::vector<char> end(2 * kTarBlock);
  if (auto ok = out.add(end.data(), end.size()); !ok) return ok.error();
  if (auto ok = out.finish(); !ok) return ok.error();
  if (auto ok = file->commit(); !ok) return ok.error();
  totals.packed = out.written();
  return totals;
}

Result<PackTotals> unpack_capture(const std::string& path, const std::string& folder,
                                  const UnpackOptions& options) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  if (auto ok = check_capture_target(folder); !ok) return ok.error();
  if (auto ok = check_sizes(path, file->bytes(), folder, options); !ok) return ok.error();
  const std::string temporary =
      fmt::format("{}.unpacking-{}", folder, static_cast<long>(::getpid()));
  std::error_code code;
  fs::remove_all(temporary, code);  // of a killed program that had this number
  for (const char* sub : {"/payload", "/cache"}) fs::create_directories(temporary + sub, code);
  if (code) {
    Error error = bad_input(fmt::format("{}: cannot be created: {}", temporary, code.message()),
                            "choose a folder that can be written, or make room on the disk");
    fs::remove_all(temporary, code);
    return error;
  }
  Archive archive(path, file->bytes());
  auto totals = extract_all(archive, temporary);
  if (totals) {
    totals->packed = file->bytes().size();
    if (auto opened = Capture::open(temporary); !opened) totals = opened.error();
  }
  if (totals) {
    if (auto ok = replace_folder(temporary, folder); !ok) totals = ok.error();
  }
  if (!totals) fs::remove_all(temporary, code);
  return totals;
}

#else

namespace {

Error no_zstd() {
  return {AS_NO_ENVIRONMENT, "this build has no zstd, which packs captures",
          "install libzstd-dev and build again, or send the folder as it is"};
}
}  // namespace

std::string zstd_version() { return ""; }

Result<PackTotals> pack_capture(const std::string&, const std::string&, int) { return no_zstd(); }
Result<PackTotals> unpack_capture(const std::string&, const std::string&, const UnpackOptions&) {
  return no_zstd();
}

#endif

}  // namespace attnscope
