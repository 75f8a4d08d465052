// What one step met of the paths that coverage.h names.
#pragma once

#include <array>
#include <cstdint>

namespace attnscope {

// In the order in which a capture keeps them: new ones come last.
enum class Path {
  kSelective,
  kNearTie,
  kWindowMoved,
  kWindowOverThreeBlocks,
  kBlockReused,
  kRecomputed,
  kFirstEntry,
  kSplitEntry,
  kLongEntry,
  kSeveralRequests,
  kMixedStep,
  kShortPrompt,
  kLongRow,
  kLargeSink,
  kSmallSink,
  kLengthsMod4,
  kChunkAt0Mod4,
  kChunkAt1Mod4,
  kChunkAt2Mod4,
  kChunkAt3Mod4,
  kManyKeys,
  kFarPage,
  kHit,
  kRanks,
  kDraftHeld,
  kDraftRefused,
  kSwapped
};
inline constexpr std::size_t kPaths = 27;

struct StepCoverage {
  std::array<std::int64_t, kPaths> counts{};  // by Path; kLengthsMod4 is of several steps
  std::uint8_t lengths_mod_4 = 0;             // bit n: a decode at a length of n modulo 4

  std::int64_t& of(Path path) { return counts[static_cast<std::size_t>(path)]; }
  std::int64_t of(Path path) const { return counts[static_cast<std::size_t>(path)]; }
};

}  // namespace attnscope
