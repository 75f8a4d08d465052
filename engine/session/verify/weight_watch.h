// Weights, sinks and rotary tables stay what they were when the session began. They are hashed
// then, and again whenever an op is about to read them: once a step each; of the embedding, where
// the step's tokens have their rows. What no write has come near since it was hashed last
// (engine/io/write_watch.h) is not read again. The engine and its references read the same memory,
// so that no comparison of outputs would show a change.
//
// A result only where something changed, once a change: the op that reads it, with the published
// name of the weight and where in it the change begins.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/io/write_watch.h"
#include "engine/session/step/op_params.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/lane.h"

namespace attnscope {

struct SessionParts;
struct Weights;

class WeightWatch {
 public:
  // Of all ranks and layers of `parts`, which must stay where they are. threads: hash.
  WeightWatch(const SessionParts& parts, const as_threads* threads);

  // What an op of a layer (its running index, -1 outside) is about to read. With the residual of a
  // layer come the slices of the other ranks, whose ops have run just before.
  std::vector<TapResult> before(int layer, const OpParams& params);
  // The embedding, whose rows of these tokens the step's hidden state is about to be made of.
  std::optional<TapResult> before_embedding(std::span<const std::int32_t> tokens);

  // Whether it is in what is watched.
  bool watches(const void* data) const;
  // as_call::weights: another one in every session, and from when something was seen to change. On
  // any thread.
  std::uint64_t number() const { return number_; }

  std::int64_t bytes() const { return bytes_; }  // of all that is watched
  double seconds() const { return seconds_; }    // that hashing took so far

 private:
  struct Watched {
    std::string name;  // "layers.2.attn.attn_sink", "the rotary table of layer 2"
    int layer = -1;    // running index
    int rank = 0;
    std::int64_t bytes = 0, element_bytes = 0;
    std::vector<std::uint64_t> hashes;   // by part
    std::unique_ptr<WriteWatch> writes;  // null: parts are always read
  };
  using Place = std::map<const std::uint8_t*, Watched>::iterator;

  // owned: its memory outlives the watch.
  void watch(const void* data, std::int64_t elements, std::int64_t element_bytes, std::string name,
             int layer, int rank, bool owned);
  // Of the parts that something may have written to since they were hashed.
  static std::vector<std::int64_t> written(Watched& watched, std::span<const std::int64_t> parts);
  // Of these parts of `bytes` bytes.
  std::vector<std::uint64_t> hash(const std::uint8_t* data, std::int64_t bytes,
                                  std::span<const std::int64_t> parts) const;
  std::optional<TapResult> look(Place place, std::span<const std::int64_t> of, as_op_id op,
                                const std::string& tap);
  // Everything that begins inside a tensor.
  void look_at(const as_tensor& tensor, as_op_id op, const std::string& tap,
               std::vector<TapResult>& found);

  const SessionParts& parts_;
  const as_threads* threads_;
  std::vector<std::shared_ptr<const Weights>> owned_;  // what is watched for writes, last to go
  std::map<const std::uint8_t*, Watched> watched_;
  std::atomic<std::uint64_t> number_ = 0;
  std::int64_t bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace attnscope
