// A store in a directory of its own, which a test may close and open again.
#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "../../base/temporary_directory.h"
#include "platform/store/store.h"

namespace tesser::platform {

class ReopenedStoreTest : public ::testing::Test {
 protected:
  ReopenedStoreTest() { reopen(); }
  std::filesystem::path file() const { return directory_ / "store.sqlite"; }
  void reopen() {
    store_.reset();
    auto opened = Store::open(file());
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = std::move(*opened);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<Store> store_;
};

}  // namespace tesser::platform
