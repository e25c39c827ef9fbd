"""An agent reserves stock and writes an order with the ORM; the payment fails, and the database is as it was.

Run it: `python order_stock.py`. No inverse is written anywhere: the adapter derives it from what the rows were.
While the agent is at work another program sells a unit of another row: that is kept.
"""

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from agent_saga import AgentKit
from agent_saga_sqlalchemy import protect


class Base(DeclarativeBase):
    pass


class Stock(Base):
    __tablename__ = "stock"
    item: Mapped[str] = mapped_column(primary_key=True)
    left: Mapped[int]


class Order(Base):
    __tablename__ = "order"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    lines: Mapped[list["Line"]] = relationship(cascade="all, delete-orphan")


class Line(Base):
    __tablename__ = "line"
    order_id: Mapped[int] = mapped_column(sa.ForeignKey("order.id"), primary_key=True)
    item: Mapped[str] = mapped_column(sa.ForeignKey("stock.item"), primary_key=True)
    count: Mapped[int]


URL = "sqlite:///order-stock.db"
kit = AgentKit(log="order-stock-log.db")
engine = protect(sa.create_engine(URL), kit, name="shop")
elsewhere = sa.create_engine(URL)


@kit.tool(effect="read_only")  # All of its effects are in the protected database, whose transactions are steps.
def order(customer: str, item: str, count: int) -> int:
    """Reserve stock and write an order."""
    with Session(engine) as session:
        session.execute(sa.update(Stock).where(Stock.item == item).values(left=Stock.left - count))
        made = Order(customer=customer, lines=[Line(item=item, count=count)])
        session.add(made)
        session.commit()
        return made.id


def main() -> None:
    """Run the agent."""
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Stock(item="tea", left=5), Stock(item="cup", left=3)])
        session.commit()
    try:
        with kit.transaction("order") as saga:
            order("ann", "tea", 2)
            with Session(elsewhere) as session:
                session.execute(sa.update(Stock).where(Stock.item == "cup").values(left=Stock.left - 1))
                session.commit()
            raise RuntimeError("the payment failed")
    except RuntimeError:
        pass
    with Session(engine) as session:
        stock = {row.item: row.left for row in session.scalars(sa.select(Stock).order_by(Stock.item))}
        orders = session.scalar(sa.select(sa.func.count()).select_from(Order))
    print(f"stock {stock}, {orders} orders, clean: {saga.report.clean}, verified: {saga.report.verified}")
    kit.close()


if __name__ == "__main__":
    main()
