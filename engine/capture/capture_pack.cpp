#include "engine/capture/capture_pack.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "engine/capture/capture.h"
#include "engine/capture/folder_swap.h"
#include "engine/capture/tar_header.h"
#include "engine/config/json_object.h"
#include "engine/tensorfile/atomic_file.h"
#include "engine/tensorfile/mapped_file.h"

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

Result<void> extract(Decompressor& in, const TarEntry& entry, const std::string& folder,
                     const std::function<Error(const std::string&)>& damaged) {
  auto file = AtomicFile::create(folder + "/" + entry.name);
  if (!file) return file.error();
  std::vector<char> buffer(kBuffer);
  for (std::uint64_t left = entry.size; left > 0;) {
    const std::size_t want = std::min<std::uint64_t>(left, buffer.size());
    if (in.read(buffer.data(), want) != want) return damaged(entry.name + " is cut off");
    if (auto ok = file->append(buffer.data(), want); !ok) return ok;
    left -= want;
  }
  const std::size_t padding = (kTarBlock - entry.size % kTarBlock) % kTarBlock;
  if (in.read(buffer.data(), padding) != padding) return damaged(entry.name + " is cut off");
  return file->commit(Sync::kNo);
}

Result<PackTotals> extract_all(Decompressor& in, const std::string& archive,
                               const std::string& folder) {
  const auto damaged = [&](const std::string& what) {
    return bad_input(fmt::format("{}: damaged: {}", archive, what),
                     "pack it again, or copy it again from where it came");
  };
  PackTotals totals;
  while (true) {
    TarBlock block;
    if (in.read(block.data(), block.size()) != block.size()) {
      return damaged(totals.files == 0 ? "is no packed capture" : "it is cut off");
    }
    const auto entry = read_tar_header(block);
    if (!entry) return damaged("a header does not fit its checksum, or is of no plain file");
    if (entry->end) break;
    std::string name = entry->name;
    while (name.starts_with("./")) name.erase(0, 2);
    if (entry->folder) continue;
    if (!belongs(name) || entry->size >= kLargestMember) {
      return damaged(fmt::format("{} is no file of a capture", shown_name(entry->name)));
    }
    if (auto ok = extract(in, {name, entry->size, false, false}, folder, damaged); !ok) {
      return ok.error();
    }
    ++totals.files;
    totals.bytes += entry->size;
  }
  // The end of the stream, with its checksum.
  char rest[kTarBlock];
  while (in.read(rest, sizeof(rest)) == sizeof(rest)) {
  }
  if (in.damaged()) return damaged("its bytes do not fit their checksum");
  return totals;
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

Result<PackTotals> unpack_capture(const std::string& path, const std::string& folder) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  if (auto ok = check_capture_target(folder); !ok) return ok.error();
  const std::string temporary =
      fmt::format("{}.unpacking-{}", folder, static_cast<long>(::getpid()));
  std::error_code code;
  fs::remove_all(temporary, code);  // of a killed program that had this number
  for (const char* sub : {"/payload", "/cache"}) fs::create_directories(temporary + sub, code);
  if (code) {
    const Error error =
        bad_input(fmt::format("{}: cannot be created: {}", temporary, code.message()),
                  "choose a folder that can be written, or make room on the disk");
    fs::remove_all(temporary, code);
    return error;
  }
  Decompressor in(file->bytes());
  auto totals = extract_all(in, path, temporary);
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
Result<PackTotals> unpack_capture(const std::string&, const std::string&) { return no_zstd(); }

#endif

}  // namespace attnscope
