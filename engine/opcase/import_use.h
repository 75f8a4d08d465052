// What of a map and of a dump found nothing in the other: a name with a letter too many leaves its
// op out, and nobody would hear of it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/opcase/import_map.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

// `name` of a map for a layer: "{layer}" is replaced.
std::string with_layer(std::string name, int layer);

class ImportUse {
 public:
  explicit ImportUse(const std::vector<TensorFile>& files) { add(files); }
  ImportUse() = default;
  // Tensors that there are.
  void add(const std::vector<TensorFile>& files);

  // An op that was looked for in a layer; taken: all that it needs was there.
  void looked_for(const ImportOp& op, int layer, bool taken);
  void looked_for(const ImportTensor& tensor, const char* key);

  // In words. `map`: names that it has for other layers and ops are no mistake.
  std::vector<std::string> sentences(const ImportMap& map) const;

 private:
  struct Entry {
    std::string op, tap, name;  // name: as the map has it
    bool found = false;
  };
  void look(const std::string& op, const std::string& tap, const std::string& name, int layer,
            bool taken);
  // Whether the map has the name for an op or a layer that was not looked for.
  bool is_of_others(const ImportMap& map, const std::string& tensor) const;

  std::set<std::string> tensors_, used_;
  std::vector<Entry> entries_;
  std::set<std::pair<std::string, int>> looked_;  // ops and layers
};

}  // namespace attnscope
