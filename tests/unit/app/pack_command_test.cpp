// `attnscope pack` of captures that are whole, and of what is left of one.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/capture/capture_pack.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace pack_command_test {

class PackCommand : public CliTest {};

TEST_F(PackCommand, DamageIsPackedAsItIsAndSaid) {
  if (packing_libraries().empty()) GTEST_SKIP() << "this build packs nothing";
  ASSERT_EQ(run({"record", "early", "-o", path("run.acap"), "--level", "full", "--steps", "1",
                 "--references", "none"})
                .code,
            0);
  const auto whole = run({"pack", path("run.acap")});
  EXPECT_EQ(whole.code, 0) << whole.err;
  const std::string payload = path("run.acap/payload/000000.safetensors");
  std::string bytes = read(payload);
  ASSERT_GT(bytes.size(), 1000u);
  bytes[bytes.size() / 2] ^= 1;
  write("run.acap/payload/000000.safetensors", bytes);
  const auto damaged = run({"pack", path("run.acap"), "--force"});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_NE(damaged.err.find("damaged"), std::string::npos) << damaged.err;
  EXPECT_NE(damaged.err.find("; packed as it is"), std::string::npos) << damaged.err;
  ASSERT_EQ(run({"unpack", path("run.acap.tar.zst"), "-o", path("again.acap")}).code, 0);
  EXPECT_EQ(read(path("again.acap/payload/000000.safetensors")), bytes);
}

}  // namespace pack_command_test
}  // namespace attnscope
