"""Test doubles: private engines, a misbehaving model server, a failing disk, and other stand-ins that tests share."""
