#include "tests/fuzz/parsers.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "engine/backend/attention_request.h"
#include "engine/capture/capture.h"
#include "engine/capture/capture_index.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/hidden_states.h"
#include "engine/config/kv_event_file.h"
#include "engine/config/scenario.h"
#include "engine/family/models.h"
#include "engine/io/byte_stream.h"
#include "engine/model/mask_expression.h"
#include "engine/sched/replay_file.h"
#include "engine/session/persist/session_file.h"
#include "engine/tensorfile/dump_file.h"
#include "engine/trace/tolerances.h"
#include "kernels/cpu/mask_code.h"
#include "tests/fuzz/judge.h"
#include "tests/fuzz/small_capture.h"
#include "tests/fuzz/small_case.h"
#include "tests/fuzz/small_golden.h"
#include "tests/fuzz/small_zip.h"

namespace attnscope::fuzz {
namespace {

namespace fs = std::filesystem;

template <class T>
std::string judge(const Result<T>& result, const std::string& file) {
  return result ? "" : judge_error(result.error(), file);
}

// Reads what the header promises.
std::string safetensors(const std::string& file) {
  auto opened = TensorFile::open(file);
  if (!opened) return judge_error(opened.error(), file);
  for (const TensorEntry& entry : opened->tensors()) {
    auto tensor = as_tensor_of(*opened, entry);
    if (!tensor) {
      if (auto wrong = judge_error(tensor.error(), file); !wrong.empty()) return wrong;
    }
  }
  opened->digest();
  return "";
}

std::string checkpoint_index(const std::string& folder, const std::string& bytes) {
  fs::create_directories(folder);
  write_bytes(folder + "/model.safetensors.index.json", bytes);
  auto checkpoint = Checkpoint::open(folder, *preset("tiny"));
  if (!checkpoint) return judge_error(checkpoint.error(), folder);
  for (const char* role :
       {"embed.weight", "layers.0.attn.wq_a.weight", "layers.0.attn.attn_sink"}) {
    const auto found = (*checkpoint)->get(role);
    if (!found) {
      if (auto wrong = judge_error(found.error(), folder); !wrong.empty()) return wrong;
    }
  }
  return "";
}

std::string kv_events(const std::string& bytes, const std::string& name) {
  const auto batches = parse_kv_events(bytes, name);
  if (!batches) return judge_error(batches.error(), name);
  for (const KvEventBatch& batch : *batches) {
    const auto again = parse_kv_events(kv_events_json(batch), name);
    if (!again) return "what was read is refused when it is written: " + again.error().text();
  }
  return "";
}

// A capture in which one text is another.
std::string capture(const std::string& bytes, const std::string& folder) {
  static const char* const kFiles[] = {"index.json", "steps.jsonl", "traces.jsonl"};
  if (!fs::exists(folder)) record_small_capture(folder);
  const std::size_t which = bytes.empty() ? 0 : static_cast<unsigned char>(bytes[0]) % 3;
  const std::string file = folder + "/" + kFiles[which];
  const std::string original = read_bytes(file);
  const std::string text = bytes.empty() ? bytes : bytes.substr(1);
  if (which == 0) {
    write_bytes(file, text);
  } else {
    // The first line, with the checksum that fits it.
    const std::size_t end = original.find('\n');
    write_bytes(file, checked_line(text) + original.substr(end + 1));
  }
  std::string wrong = judge_capture(folder);
  write_bytes(file, original);
  return wrong;
}

// A kept session with bytes changed behind a checksum that fits.
std::string session(const std::string& bytes, const std::string& file) {
  struct Header {
    char magic[8];
    std::uint64_t bytes, checksum;
  };
  static const std::string original = [&] {
    const auto run = small_session();
    while (!run->finished()) {
      if (!run->step()) break;
    }
    if (auto ok = save_session(*run, file, "key"); !ok) return std::string();
    return read_bytes(file);
  }();
  if (original.size() < sizeof(Header)) return "the session could not be kept";
  std::string changed = original;
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const auto byte = [&](std::size_t at) {
      return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at]));
    };
    const std::size_t place = byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16;
    changed[sizeof(Header) + place % (changed.size() - sizeof(Header))] = bytes[i + 3];
  }
  const std::size_t rest = bytes.size() % 4;  // cut off
  if (rest != 0) changed.resize(sizeof(Header) + changed.size() * rest / 4 - sizeof(Header));
  Header header{};
  std::copy_n(changed.data(), sizeof(header), reinterpret_cast<char*>(&header));
  header.bytes = changed.size() - sizeof(header);
  header.checksum = checksum(reinterpret_cast<const std::uint8_t*>(changed.data()) + sizeof(header),
                             header.bytes);
  std::copy_n(reinterpret_cast<const char*>(&header), sizeof(header), changed.data());
  write_bytes(file, changed);
  static std::unique_ptr<Session> fresh;
  if (!fresh) fresh = small_session();
  const auto loaded = load_session(*fresh, file, "key");
  if (!loaded) return judge_error(loaded.error(), file);
  fresh.reset();
  return "";
}

// One of two files that belong together is another.
template <class Files>
std::string one_of_two(const Files& files, const std::string& bytes, const std::string& first,
                       const std::string& second, const std::string& first_was,
                       const std::string& second_was) {
  const bool other = !bytes.empty() && static_cast<unsigned char>(bytes[0]) % 2 == 1;
  const std::string text = bytes.empty() ? bytes : bytes.substr(1);
  write_bytes(first, other ? first_was : text);
  write_bytes(second, other ? text : second_was);
  return files.judge();
}

std::string golden(const std::string& bytes, const std::string& folder) {
  static std::unique_ptr<SmallGolden> small;
  if (!small || small->folder() != folder) small = std::make_unique<SmallGolden>(folder);
  return one_of_two(*small, bytes, small->definition_file(), small->accepted_file(),
                    small->definition(), small->accepted());
}

std::string op_case(const std::string& bytes, const std::string& folder) {
  static std::unique_ptr<SmallCase> small;
  if (!small || small->folder() != folder) small = std::make_unique<SmallCase>(folder);
  return one_of_two(*small, bytes, small->path(), small->tensors_path(), small->json(),
                    small->tensors());
}

// Reads every byte of every tensor.
std::string dump(const std::string& file) {
  const auto opened = open_dump(file);
  if (!opened) return judge_error(opened.error(), file);
  opened->digest();
  return "";
}

std::string pickle(const std::string& bytes, const std::string& file) {
  write_bytes(file, zip_of({{"archive/data.pkl", bytes}, {"archive/data/0", std::string(64, 1)}}));
  return dump(file);
}

// What is taken runs, at any place; what is refused names a column, in one line.
std::string mask(const std::string& bytes) {
  if (bytes.empty()) return "";
  const bool is_score = (bytes[0] & 1) != 0;
  const std::string text = bytes.substr(1);
  const Result<MaskCode> code = is_score ? parse_score(text) : parse_mask(text);
  if (!code) {
    const std::string& message = code.error().message;
    if (code.error().code != AS_BAD_INPUT) return "another code than AS_BAD_INPUT";
    if (!message.starts_with("column ")) return "no column: " + message;
    return message.find('\n') == std::string::npos ? "" : "more than one line: " + message;
  }
  as_error error{};
  cpu::Check check(AS_OP_VARLEN_ATTENTION, &error);
  const as_tensor tensor = code->tensor();
  if (!cpu::check_mask_code("mask_code", tensor, is_score, true, check)) return error.message;
  for (const std::int64_t at : {0, 1, 63}) cpu::run_mask_code(tensor, {at, 2 * at, 1, 0}, 0.5);
  return "";
}

std::string import_map(const std::string& bytes, const std::string& file) {
  const std::string dump = file + ".safetensors";
  if (!fs::exists(dump)) write_small_dump(dump);
  write_bytes(file, bytes);
  return judge_map(file, dump);
}

}  // namespace

std::optional<Parser> parser_by_name(const std::string& name) {
  const auto* const it = std::find(kParserNames.begin(), kParserNames.end(), name);
  if (it == kParserNames.end()) return std::nullopt;
  return static_cast<Parser>(it - kParserNames.begin());
}

std::string judge_capture(const std::string& folder, bool* sound) {
  if (sound != nullptr) *sound = false;
  const auto capture = Capture::open(folder);
  if (!capture) return judge_error(capture.error(), folder);
  if (auto ok = (*capture)->verify(); !ok) return judge_error(ok.error(), folder);
  if (sound != nullptr) *sound = true;
  for (const std::int32_t block : {-1, 0, 1, 2, 1 << 30}) {
    const auto bytes = (*capture)->block(1, block);
    if (!bytes) return judge_error(bytes.error(), folder);
  }
  return "";
}

std::string feed(Parser parser, const std::string& bytes, const std::string& scratch_file) {
  switch (parser) {
    case Parser::kReplay:
      return judge(parse_replay(bytes, scratch_file), scratch_file);
    case Parser::kKvEvents:
      return kv_events(bytes, scratch_file);
    case Parser::kCheckpointIndex:
      return checkpoint_index(scratch_file + ".model", bytes);
    case Parser::kCapture:
      return capture(bytes, scratch_file + ".acap");
    case Parser::kSession:
      return session(bytes, scratch_file);
    case Parser::kGolden:
      return golden(bytes, scratch_file + ".goldens");
    case Parser::kCase:
      return op_case(bytes, scratch_file + ".case");
    case Parser::kImportMap:
      return import_map(bytes, scratch_file);
    case Parser::kPickle:
      return pickle(bytes, scratch_file);
    case Parser::kMask:
      return mask(bytes);
    default:
      break;
  }
  write_bytes(scratch_file, bytes);
  switch (parser) {
    case Parser::kScenario:
      return judge(load_scenario(scratch_file), scratch_file);
    case Parser::kModelConfig:
      if (auto wrong = judge(read_attention_request(scratch_file), scratch_file); !wrong.empty()) {
        return wrong;
      }
      return judge(read_hf_config(scratch_file), scratch_file);
    case Parser::kTolerances:
      return judge(Tolerances::load(scratch_file), scratch_file);
    case Parser::kNpy:
    case Parser::kZip:
      return dump(scratch_file);
    case Parser::kSafetensors:
      return safetensors(scratch_file);
    case Parser::kHiddenStates:
      return judge(HiddenStates::open(scratch_file, *preset("tiny", {0}), {{"one", 2}}),
                   scratch_file);
    default:
      return "no such parser";
  }
}

}  // namespace attnscope::fuzz
