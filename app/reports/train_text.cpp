#include "app/reports/train_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "engine/io/assets_folder.h"
#include "engine/io/byte_stream.h"
#include "engine/io/json_file.h"
#include "engine/model/synthetic_fill.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTextPiece = 4100;  // four sequences of 1,024 bytes and what follows each
constexpr std::int64_t kHeldOf = 10;       // one of so many pieces

std::int64_t bytes_of(const std::vector<TextRun>& runs) {
  std::int64_t n = 0;
  for (const TextRun& run : runs) n += run.end - run.begin;
  return n;
}

// Where a sequence of so many bytes can begin.
std::int64_t places_in(const TextRun& run, std::int64_t bytes) {
  return std::max<std::int64_t>(0, run.end - run.begin - bytes + 1);
}

Result<std::vector<std::string>> own_texts() {
  auto assets = assets_folder();
  if (!assets) return assets.error();
  std::vector<std::string> files;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(*assets, code)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".md") || name == "prompts.md" || name == "training.md") continue;
    files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  if (!files.empty()) return files;
  return bad_input(fmt::format("{}: no texts to learn from", *assets), "name some: --text FILE");
}

void put(const TrainText& text, std::int64_t begin, std::int64_t bytes,
         std::vector<std::int32_t>& out) {
  for (std::int64_t i = begin; i < begin + bytes; ++i) {
    out.push_back(static_cast<unsigned char>(text.bytes[static_cast<std::size_t>(i)]));
  }
}

}  // namespace

std::int64_t TrainText::learnt_bytes() const { return bytes_of(learnt); }
std::int64_t TrainText::held_bytes() const { return bytes_of(held); }

TrainText cut_train_text(std::string bytes) {
  TrainText text;
  text.bytes = std::move(bytes);
  text.sum = checksum(reinterpret_cast<const std::uint8_t*>(text.bytes.data()), text.bytes.size());
  const auto size = std::ssize(text.bytes);
  std::int64_t begin = 0;  // of what is learnt from
  for (std::int64_t piece = kHeldOf / 2; piece * kTextPiece < size; piece += kHeldOf) {
    const std::int64_t from = piece * kTextPiece, to = std::min(size, from + kTextPiece);
    text.learnt.push_back({begin, from});
    text.held.push_back({from, to});
    begin = to;
  }
  if (begin < size) text.learnt.push_back({begin, size});
  return text;
}

Result<TrainText> read_train_text(const std::vector<std::string>& given, std::int64_t length) {
  std::vector<std::string> files = given;
  if (files.empty()) {
    auto own = own_texts();
    if (!own) return own.error();
    files = std::move(*own);
  }
  std::string all;
  for (const std::string& file : files) {
    auto text = read_text_file(file);
    if (!text) return text.error();
    all += *text;
  }
  TrainText text = cut_train_text(std::move(all));
  text.files = std::move(files);
  const auto room = [&](const std::vector<TextRun>& runs) {
    return std::ranges::any_of(runs,
                               [&](const TextRun& r) { return places_in(r, length + 1) > 0; });
  };
  if (room(text.learnt) && room(text.held)) return text;
  return bad_input(
      fmt::format("{} bytes of text: too few for sequences of {}", text.bytes.size(), length),
      fmt::format("a piece of {} bytes is held out of every {}: give at least {} bytes and "
                  "sequences of at most {}",
                  kTextPiece, kTextPiece * kHeldOf, kTextPiece * (kHeldOf / 2 + 1),
                  kTextPiece - 1));
}

std::vector<std::int32_t> learnt_batch(const TrainText& text, std::uint64_t seed, std::int64_t step,
                                       std::int64_t sequences, std::int64_t length) {
  std::int64_t places = 0;
  for (const TextRun& run : text.learnt) places += places_in(run, length + 1);
  std::vector<std::int32_t> out;
  if (places < 1) return out;  // no text that was read is so short
  for (std::int64_t s = 0; s < sequences; ++s) {
    const std::uint64_t counter =
        element_hash(seed, 0) + static_cast<std::uint64_t>(step * sequences + s);
    auto place =
        static_cast<std::int64_t>(element_hash(counter, 0) % static_cast<std::uint64_t>(places));
    for (const TextRun& run : text.learnt) {
      const std::int64_t here = places_in(run, length + 1);
      if (place < here) {
        put(text, run.begin + place, length + 1, out);
        break;
      }
      place -= here;
    }
  }
  return out;
}

std::vector<std::int32_t> held_batch(const TrainText& text, std::int64_t most,
                                     std::int64_t length) {
  std::vector<std::int32_t> out;
  std::int64_t taken = 0;
  // One of each piece, then a second of each, ..
  for (std::int64_t nth = 0; nth * (length + 1) < kTextPiece; ++nth) {
    for (const TextRun& run : text.held) {
      const std::int64_t begin = run.begin + nth * (length + 1);
      if (taken == most || begin + length + 1 > run.end) continue;
      put(text, begin, length + 1, out);
      ++taken;
    }
  }
  return out;
}

}  // namespace attnscope
