// Feeds one input to a parser of user files through a real file, as a user's would come. Whatever
// the bytes, the parser must return: a value, or AS_BAD_INPUT with a message that names the file.
#pragma once

#include <array>
#include <optional>
#include <string>

namespace attnscope::fuzz {

enum class Parser {
  kScenario,
  kModelConfig,
  kTolerances,
  kSafetensors,
  kCheckpointIndex,
  kHiddenStates,
  kReplay,
  kKvEvents,
  kCapture,  // first byte: index.json, a line of steps.jsonl or one of traces.jsonl; then its text
  kSession,  // places and new bytes in a kept session: 3 bytes of offset, 1 of value
  kGolden,   // first byte: a definition or accepted values; then its text
  kCase,     // first byte: the numbers or the tensors of an op case; then the file
  kImportMap,
  kNpy,
  kZip,     // .npz and .pt as they lie
  kPickle,  // data.pkl of a .pt whose other members are sound
  kMask     // first byte: a mask or a score function; then the expression
};

// Names of the parsers, which are also those of their folders in tests/fuzz/corpus.
inline constexpr std::array kParserNames = {
    "scenario",      "config", "tolerances", "safetensors", "checkpoint_index",
    "hidden_states", "replay", "kv_events",  "capture",     "session",
    "golden",        "case",   "import_map", "npy",         "zip",
    "pickle",        "mask"};
std::optional<Parser> parser_by_name(const std::string& name);

// Empty when all is well, else what is wrong with the answer. scratch_file: a path that is free;
// what is left there belongs to the caller.
std::string feed(Parser parser, const std::string& bytes, const std::string& scratch_file);

// The answer to a damaged capture: AS_BAD_INPUT in one line that names it. sound: whether it opened
// and all its parts fit their checksums.
std::string judge_capture(const std::string& folder, bool* sound = nullptr);

}  // namespace attnscope::fuzz
