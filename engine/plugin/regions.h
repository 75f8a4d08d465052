// The tensors of one call of a plugin, each with room around it that must stay as it is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/opcase/op_case.h"
#include "engine/plugin/protocol.h"

namespace attnscope {

// Memory that CaseCall lays a call out in, tensor by tensor.
class PluginMemory : public CaseMemory {
 public:
  // What outputs hold before a call; 0xff unless said.
  void set_poison(std::uint8_t byte) { poison_ = byte; }
  std::uint8_t poison() const { return poison_; }
  const std::vector<PluginRegion>& regions() const { return regions_; }
  // The pointers of a call's params that lead to them.
  std::vector<PluginPointer> pointers(const CaseCall& call) const;

 protected:
  // Names a region and fills it: canaries, poison or 0xff where the data goes. Its first byte is
  // `memory`.
  void add(const PluginRegion& region, std::uint8_t* memory);
  void forget();
  const std::vector<std::uint8_t*>& memory() const { return memory_; }

 private:
  std::uint8_t poison_ = 0xff;
  std::vector<PluginRegion> regions_;
  std::vector<std::uint8_t*> memory_;
};

// Makes tensors of a params struct lie on the device, in their regions of `room`.
void point_to_device(void* params, std::span<const PluginPointer> pointers,
                     std::span<const PluginRegion> regions, std::uint8_t* room);

// What was written around the data of a region that begins at `all`: "wrote 4 bytes behind the end
// of out"; empty = nothing.
std::string spoilt(const PluginRegion& region, const std::uint8_t* all);
// Rows of an output cache that the op was not given, and that are not poison any more; empty =
// none.
std::string strays(const CaseCall& call, const OpCase& kept, std::uint8_t poison = 0xff);

}  // namespace attnscope
