#include "engine/capture/capture_pack.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "engine/capture/capture.h"
#include "engine/capture/notes.h"
#include "engine/io/atomic_file.h"
#include "engine/io/folder_swap.h"
#include "engine/io/json_object.h"
#include "engine/io/mapped_file.h"

#ifdef ATTNSCOPE_HAS_PACKING
#include <archive.h>
#include <archive_entry.h>
#include <zstd.h>
#endif

namespace attnscope {

#ifdef ATTNSCOPE_HAS_PACKING
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBuffer = std::size_t{1} << 20;
constexpr std::uint64_t kLargestMember = std::uint64_t{8} << 30;  // what a header of ustar holds
constexpr std::uint64_t kMostFolders = 256;  // of an archive; a capture has two

// Whether a capture has a file of this name: nothing else is read from an archive or put into one.
bool belongs(const std::string& name) {
  if (name == "index.json" || name == "steps.jsonl" || name == "traces.jsonl" ||
      name == "weights.safetensors" || name == kNotesFile) {
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

// One file of an archive.
struct Member {
  std::string name;
  std::uint64_t size = 0;
};

// Goes through the files of an archive once.
class Archive {
 public:
  Archive(std::string path, std::span<const std::uint8_t> bytes)
      : path_(std::move(path)), in_(bytes), tar_(archive_read_new(), archive_read_free) {}

  Error damaged(const std::string& what) const {
    return bad_input(fmt::format("{}: damaged: {}", path_, what),
                     "pack it again, or copy it again from where it came");
  }

  // `take` is given each file, whose bytes it reads with read().
  Result<PackTotals> each(const std::function<Result<void>(const Member& member)>& take) {
    archive_read_support_format_tar(tar_.get());
    if (archive_read_open(tar_.get(), this, nullptr, &Archive::more, nullptr) != ARCHIVE_OK) {
      return damaged("is no packed capture");
    }
    PackTotals totals;
    std::uint64_t folders = 0;
    std::set<std::string> names;
    while (true) {
      archive_entry* entry = nullptr;
      const int status = archive_read_next_header(tar_.get(), &entry);
      if (status == ARCHIVE_EOF) break;
      if (status != ARCHIVE_OK) {
        return damaged(totals.files == 0 ? "is no packed capture"
                                         : "a header is damaged or cut off");
      }
      if (archive_entry_filetype(entry) == AE_IFDIR) {
        // Two million of their headers are 100 KiB of zstd, and took 45 seconds.
        if (++folders > kMostFolders) return damaged("has more folders than a capture");
        continue;
      }
      const char* name = archive_entry_pathname(entry);
      Member member{name != nullptr ? name : "", 0};
      while (member.name.starts_with("./")) member.name.erase(0, 2);
      const bool plain = archive_entry_filetype(entry) == AE_IFREG &&
                         archive_entry_hardlink(entry) == nullptr &&
                         archive_entry_sparse_count(entry) == 0;
      if (!plain || !belongs(member.name) || archive_entry_size(entry) < 0 ||
          static_cast<std::uint64_t>(archive_entry_size(entry)) >= kLargestMember) {
        return damaged(fmt::format("{} is no file of a capture", shown_name(member.name)));
      }
      if (!names.insert(member.name).second) {
        return damaged(fmt::format("{} is in it twice", shown_name(member.name)));
      }
      member.size = static_cast<std::uint64_t>(archive_entry_size(entry));
      ++totals.files;
      totals.bytes += member.size;
      if (auto ok = take(member); !ok) return ok.error();
    }
    const std::int64_t end = archive_read_header_position(tar_.get());
    // The end of the stream, with its checksum.
    for (std::size_t n = 0, read = 1; read > 0; n += read) {
      if (n > kMostPadding) return damaged("something follows its end");
      read = in_.read(ahead_.data(), ahead_.size());
    }
    if (in_.damaged()) return damaged("its bytes do not fit their checksum");
    // To libarchive a stream that ends between two files is whole.
    if (given_ < end + kTarBlock) return damaged("it is cut off");
    return totals;
  }

  // All bytes of the file that `take` was given, in parts.
  Result<void> read(const Member& member,
                    const std::function<Result<void>(const char* data, std::size_t bytes)>& part) {
    for (std::uint64_t left = member.size; left > 0;) {
      const std::size_t want = std::min<std::uint64_t>(left, part_.size());
      const la_ssize_t got = archive_read_data(tar_.get(), part_.data(), want);
      if (got <= 0) return damaged(member.name + " is cut off");
      if (auto ok = part(part_.data(), static_cast<std::size_t>(got)); !ok) return ok;
      left -= static_cast<std::uint64_t>(got);
    }
    return {};
  }

 private:
  static constexpr std::size_t kMostPadding = std::size_t{1} << 20;  // other programs fill records
  static constexpr std::int64_t kTarBlock = 512;

  static la_ssize_t more(archive*, void* self, const void** data) {
    auto* own = static_cast<Archive*>(self);
    *data = own->ahead_.data();
    const auto bytes = static_cast<la_ssize_t>(own->in_.read(own->ahead_.data(), kBuffer));
    own->given_ += bytes;
    return bytes;
  }

  std::string path_;
  Decompressor in_;
  std::int64_t given_ = 0;  // bytes that libarchive was given
  std::vector<char> ahead_ = std::vector<char>(kBuffer), part_ = std::vector<char>(kBuffer);
  std::unique_ptr<archive, decltype(&archive_read_free)> tar_;
};

// Writes files one after the other into a compressed archive.
class ArchiveWriter {
 public:
  explicit ArchiveWriter(Compressor& out)
      : out_(out), tar_(archive_write_new(), archive_write_free) {}

  Result<void> open() {
    archive_write_set_format_ustar(tar_.get());
    archive_write_set_bytes_per_block(tar_.get(), 0);
    return done(archive_write_open(tar_.get(), this, nullptr, &ArchiveWriter::put, nullptr));
  }
  Result<void> add(const std::string& name, std::span<const std::uint8_t> bytes) {
    const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(),
                                                                              archive_entry_free);
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(bytes.size()));
    if (auto ok = done(archive_write_header(tar_.get(), entry.get())); !ok) return ok;
    for (std::size_t at = 0; at < bytes.size();) {
      const la_ssize_t n = archive_write_data(tar_.get(), bytes.data() + at, bytes.size() - at);
      if (n <= 0) return done(ARCHIVE_FATAL);
      at += static_cast<std::size_t>(n);
    }
    return done(archive_write_finish_entry(tar_.get()));
  }
  Result<void> close() { return done(archive_write_close(tar_.get())); }

 private:
  // What the disk or zstd said comes before what libarchive makes of it.
  Result<void> done(int status) {
    if (failed_) return *failed_;
    if (status == ARCHIVE_OK) return {};
    const char* why = archive_error_string(tar_.get());
    return internal_error(why != nullptr ? why : "libarchive failed");
  }
  static la_ssize_t put(archive*, void* self, const void* data, std::size_t bytes) {
    auto* own = static_cast<ArchiveWriter*>(self);
    if (auto ok = own->out_.add(data, bytes); !ok) {
      own->failed_ = ok.error();
      return -1;
    }
    return static_cast<la_ssize_t>(bytes);
  }

  Compressor& out_;
  std::optional<Error> failed_;
  std::unique_ptr<archive, decltype(&archive_write_free)> tar_;
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
  auto listed = archive.each([&](const Member& member) -> Result<void> {
    total += member.size;
    // Before its bytes are gone through.
    if (total > most) return too_large(total);
    const bool is_index = member.name == "index.json";
    if (is_index && member.size > kLargestIndex) return archive.damaged("index.json is too large");
    const bool is_notes = member.name == kNotesFile;  // index.json does not count them
    if (is_notes && member.size > kLargestNotes) {
      return archive.damaged(fmt::format("{} is too large", kNotesFile));
    }
    if (!is_index && !is_notes) others += member.size;
    if (is_index) index_text.clear();
    return archive.read(member, [&](const char* data, std::size_t n) -> Result<void> {
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
  return archive.each([&](const Member& member) -> Result<void> {
    auto file = AtomicFile::create(folder + "/" + member.name);
    if (!file) return file.error();
    auto ok = archive.read(
        member, [&](const char* data, std::size_t bytes) { return file->append(data, bytes); });
    return ok ? file->commit(Sync::kNo) : ok;
  });
}

}  // namespace

std::string packing_libraries() {
  return fmt::format("zstd {}, {}", ZSTD_versionString(), archive_version_string());
}

Result<PackTotals> pack_capture(const std::string& folder, const std::string& path, int level) {
  auto capture = Capture::open(folder);
  if (!capture) return capture.error();
  std::error_code code;
  if (fs::is_directory(path, code)) return bad_input(path + ": is a folder, not a file");
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  Compressor out(*file, level);
  ArchiveWriter tar(out);
  if (auto ok = tar.open(); !ok) return ok.error();
  PackTotals totals;
  if (auto whole = (*capture)->verify(); !whole) totals.damage = whole.error();
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
    if (auto ok = tar.add(name, bytes); !ok) return ok.error();
    ++totals.files;
    totals.bytes += bytes.size();
  }
  if (auto ok = tar.close(); !ok) return ok.error();
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

Error no_packing() {
  return {AS_NO_ENVIRONMENT, "this build has no libarchive and zstd, which pack captures",
          "install libarchive-dev and libzstd-dev and build again, or send the folder as it is"};
}
}  // namespace

std::string packing_libraries() { return ""; }

Result<PackTotals> pack_capture(const std::string&, const std::string&, int) {
  return no_packing();
}
Result<PackTotals> unpack_capture(const std::string&, const std::string&, const UnpackOptions&) {
  return no_packing();
}

#endif

}  // namespace attnscope
