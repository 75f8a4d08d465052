// Where a session's tensors are when a GPU computes: every host tensor has a mirror on the device,
// made when an op first needs it, and whichever side was written last is the newer one. Between two
// ops of the device nothing travels; the host gets what it asks for, in stream order.
//
//   weights, rotary tables,
//   code of masks            uploaded once
//   caches                   one slab on the device, byte for byte the host's, newer block by block
//   rows in host memory      pages once more, in memory that the device reaches by itself
//   the rest                 valid for one step
//
// Host code keeps its host addresses: params of ops are translated just before the call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/backend/compute_device.h"
#include "engine/session/device/input_recheck.h"
#include "engine/session/step/op_params.h"
#include "engine/session/step/session_parts.h"
#include "engine/session/step/slab.h"
#include "engine/session/step/token_part.h"

namespace attnscope {

class Residency : public SlabMirror {
 public:
  // The slab must outlive it and gets it as its mirror. What the host has not fetched by the end is
  // lost: a session that leaves its device goes back to a rewind point.
  static Result<std::unique_ptr<Residency>> make(std::shared_ptr<ComputeDevice> device,
                                                 const SessionParts& parts, Slab& slab);
  ~Residency() override;

  ComputeDevice& device() { return *device_; }

  // A new step: tensors of the one before mean nothing any more. tables name its blocks, in any
  // order and more than once; they are looked at when something asks for these, in this step.
  void begin_step(const std::vector<std::int32_t>& tables);

  // Runs an op of the device's lane on the main stream; the same params with host addresses.
  // poison: outputs start as output_poison.h says. An event before it and one after it are marked.
  Result<void> run(as_op_fn function, const OpParams& params, bool poison);
  // The kernels that run() has launched, before anything else is done with the op's tensors.
  Result<OpLaunches> launches(as_op_fn function, const OpParams& params);
  // For some of the step's tokens alone; what others have in the outputs stays.
  Result<void> run_part(as_op_fn function, const OpParams& params, TokenPart tokens);
  // The same of exchange_rows: the pages that it reads and writes are those in host memory, which
  // the device reaches by itself. meanwhile: puts what may run beside it on the main stream; null =
  // nothing.
  Result<void> exchange(as_op_fn function, const OpParams& params, bool poison,
                        const std::function<Result<void>()>& meanwhile = nullptr);
  // Around an op that a lane of the host runs: what it reads comes to the host, what it wrote is
  // newer there.
  Result<void> before_host_op(const OpParams& params);
  void after_host_op(const OpParams& params);

  // Brings everything the op read or wrote to the host, and the blocks of its caches.
  Result<void> fetch(const OpParams& params);
  Result<void> fetch(const as_tensor& tensor);
  // The same of an op that has run, and of what it read once more where that is no longer what the
  // host has.
  Result<void> show(const OpParams& params);
  InputRecheck& inputs() { return inputs_; }
  // Host code has written this tensor.
  void host_wrote(const as_tensor& tensor);
  // last[i] = hidden[rows[i]], where the newer hidden state is.
  Result<void> gather(const as_tensor& hidden, const std::vector<std::int64_t>& rows,
                      const as_tensor& last);
  // Host code has written any block (a rewind point came back).
  void host_wrote_all_blocks();

  // Microseconds of every op run since the last call, in order; waits for them.
  Result<std::vector<double>> take_times();

  // SlabMirror
  void fetch(std::int64_t block) override;
  void wrote(std::int64_t block) override;
  void fill(std::int64_t block) override;

  // Why the device cannot be used any more, once a fetch has failed.
  const std::optional<Error>& lost() const { return lost_; }

  // For what runs on the device beside single ops: a decode plan.
  bool is_constant(const void* host) const;           // a weight or a rotary table
  Result<as_tensor> constant(const as_tensor& host);  // its place on the device
  as_cache on_device(const as_cache& host) const;
  // Where the host's are newer: of the step's tables, or all.
  Result<void> upload_blocks();
  void device_wrote(std::int64_t block);
  void device_wrote(const OpParams& params);  // the rows of its caches; host addresses

 private:
  struct Mirror {
    void* memory = nullptr;
    std::size_t capacity = 0;
    bool device_valid = false, host_valid = true;
    std::int64_t used = 0;  // step count
  };
  Residency(std::shared_ptr<ComputeDevice> device, const SessionParts& parts, Slab& slab);

  // The mirror of a tensor's memory, at least as large; what it holds is undefined when it grew.
  Result<Mirror*> mirror(const as_tensor& host);
  Result<void> to_device(as_tensor& tensor, bool written, std::optional<std::uint8_t> poison);
  Result<void> fetch_taps(const OpParams& params, bool outputs);
  // The same, of tensors with what is brought next.
  Result<void> bring_taps(const OpParams& params, bool outputs);
  // What was brought is valid on the host once it is there, not before.
  Result<void> run_inputs();
  Result<void> forget_inputs(Result<void> why);
  // Puts the copy of a block that is newer on the device on the stream, and says so.
  Result<void> download_block(std::int64_t block, bool* any);
  const std::vector<std::int32_t>& step_blocks();
  // Calls an op whose params name memory of the device.
  Result<void> call(as_op_fn function, const OpParams& there, int branch = 0);
  // Caches and tensors of a call, on the device.
  Result<OpParams> moved(const OpParams& params, bool poison);
  // The tensors of a call, on the device.
  Result<void> tensors_to_device(OpParams& there, bool poison);
  // The page of a block in the memory that the device reaches is the newest.
  Result<void> renew_host_page(std::int64_t block);
  // What was filled and nobody has looked at since.
  void fill_host();

  std::shared_ptr<ComputeDevice> device_;
  InputRecheck inputs_;
  const SessionParts& parts_;
  Slab& slab_;
  unsigned char* device_slab_ = nullptr;
  std::map<const void*, std::size_t> constant_ranges_;  // host address, bytes
  std::unordered_map<const void*, void*> constants_;    // of those that are there
  std::unordered_map<const void*, Mirror> mirrors_;     // by host address
  std::vector<Mirror*> brought_;                        // by the next run of inputs_
  std::multimap<std::size_t, void*> spare_;             // memory of forgotten mirrors, by size
  std::vector<bool> host_newer_, device_newer_;         // by block
  std::vector<bool> filled_;     // by block: the newer one of the host is 0xFF, all of it
  std::vector<bool> unwritten_;  // by block: the host's bytes are still to be filled
  std::vector<std::int64_t> to_fill_;
  // Blocks that became newer on the host one by one. While these are all that are (nearly always),
  // nobody has to look through the tables, of a hundred thousand entries with many requests.
  std::vector<std::int32_t> newly_;
  std::size_t num_newer_ = 0;
  const std::vector<std::int32_t>* tables_ = nullptr;  // not looked at yet
  std::vector<std::int32_t> step_blocks_;
  unsigned char* host_pages_ = nullptr;  // of all blocks, once rows were exchanged
  std::vector<bool> host_page_valid_;    // by block
  std::vector<std::int64_t> met_;        // by block: the step that it was in last
  bool blocks_checked_ = false;          // every block of the step is on the device
  std::int64_t step_ = 0;
  std::size_t marks_ = 0;  // events since take_times
  std::optional<Error> lost_;
};

}  // namespace attnscope
